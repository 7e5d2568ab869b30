-- `status` is 1 or 0, as docs/format/index-schema.md says and as SQLite has it: it was a boolean, and a query that
-- works on one of the two did not on the other. This writes the ranges of `txs` anew, once.
alter table txs alter column status type smallint using status::integer::smallint;
alter table txs add constraint txs_status check (status in (0, 1));

-- What each address has sent and received in transactions that did not fail; under the same names as in SQLite,
-- where sum(value) would lose digits.
create view amounts_sent as
select "from" as address, count(*) as transactions, sum(value) as total
from txs
where "from" is not null and value is not null and status is distinct from 0
group by "from";

create view amounts_received as
select "to" as address, count(*) as transactions, sum(value) as total
from txs
where "to" is not null and value is not null and status is distinct from 0
group by "to";
