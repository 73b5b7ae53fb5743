create table items (id int primary key, name text, amount int)
insert into items select i, 'item ' || i, i * 7919 % 10007 from generate_series(1, 40000) i
create index on items (amount)
update items set name = name || ' again' where amount < 5000
select amount % 10 as part, count(*), sum(id), md5(string_agg(name, ',' order by id)) from items group by part order by part
select count(*), md5(string_agg(a.name || b.name, ',' order by a.id, b.id)) from items a join items b on a.amount = b.amount
