# Strings, hashes and arrays in four threads. Prints a checksum.
require "digest"
require "json"

def work(number)
  digest = Digest::SHA256.new
  12.times do |turn|
    records = (0...3000).map { |i| { "id" => i, "name" => "name #{i * number + turn}", "tags" => [i.to_s] * 3 } }
    text = JSON.generate(records)
    words = text.scan(/name \d+/).map(&:upcase).sort
    digest << text << words.join(",")
  end
  digest.hexdigest
end

threads = (1..4).map { |number| Thread.new { work(number) } }
puts Digest::SHA256.hexdigest(threads.map(&:value).join)

if ENV["IDLE"]
  threads = nil
  GC.start
  File.write(ENV["IDLE"], "")
  sleep 100
end
