-- What scripts do: words, tables of tables, sorting, closures, strings made from pieces. It prints a checksum that
-- depends on no address and on no order of a table's keys.
local state = 1
local function draw(most)
    state = (state * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff
    return (state >> 33) % most + 1
end

local sum = 0
local function count(value)
    sum = (sum * 31 + value) & 0xffffffffffff
end

for turn = 1, work do
    -- Words and how often each occurs.
    local words, counts = {}, {}
    for i = 1, 2000 do
        local word = "word" .. draw(700) .. string.rep("x", draw(12))
        words[i] = word
        counts[word] = (counts[word] or 0) + 1
    end
    local order = {}
    for word in pairs(counts) do
        order[#order + 1] = word
    end
    table.sort(order, function(one, other)
        if counts[one] ~= counts[other] then return counts[one] > counts[other] end
        return one < other
    end)
    for i = 1, 50 do count(#order[i] * counts[order[i]]) end

    -- Records, written as text and read again.
    local records = {}
    for i = 1, 500 do
        records[i] = { id = i, name = words[i], tags = { words[i + 1], words[i + 2] }, size = draw(1000) }
    end
    local lines = {}
    for i, record in ipairs(records) do
        lines[i] = string.format("%d;%s;%s;%d", record.id, record.name, table.concat(record.tags, ","), record.size)
    end
    local text = table.concat(lines, "\n")
    for id, name, tags, size in text:gmatch("(%d+);(%w+);([%w,]+);(%d+)") do
        count(tonumber(id) + #name + #tags + tonumber(size))
    end
    count(#text:gsub("word", "w"):upper())

    -- Closures and trees.
    local function tree(depth)
        if depth == 0 then return { value = draw(9) } end
        return { left = tree(depth - 1), right = tree(depth - 1), at = function() return depth end }
    end
    local function total(node)
        if node.value then return node.value end
        return node.at() + total(node.left) + total(node.right)
    end
    count(total(tree(11)))
end
print("script " .. work .. " sum " .. sum)
