create database work;
use work;
create table items (id int primary key, name varchar(100), amount int, key (amount)) engine=InnoDB;
insert into items select seq, concat('item ', seq), seq * 7919 % 10007 from seq_1_to_40000;
create table sums as select amount % 100 as part, count(*) as n, sum(id) as total, group_concat(name order by id) as names from items group by part;
update items set name = concat(name, ' again') where amount < 5000;
delete from items where amount > 9000;
select i.part, i.n, i.total, md5(i.names) into outfile '/tmp/tables.txt' from sums i order by i.part;
select count(*), sum(amount), md5(group_concat(name order by id)) into outfile '/tmp/items.txt' from items;
