-- A database and two roles for an index: one for the worker, which owns the tables and makes
-- partitions, and one that only reads. Run it as a superuser; passwords are set apart, with
-- \password, so that they are in no file and no history.
--
--   psql -X -v ON_ERROR_STOP=1 -f ops/postgres/role.sql postgres

select 'create role secateur login' where not exists (
    select from pg_roles where rolname = 'secateur'
) \gexec

select 'create role secateur_reader login' where not exists (
    select from pg_roles where rolname = 'secateur_reader'
) \gexec

select 'create database secateur owner secateur' where not exists (
    select from pg_database where datname = 'secateur'
) \gexec

grant connect on database secateur to secateur_reader;

\connect secateur
grant create, usage on schema public to secateur;
grant usage on schema public to secateur_reader;
-- Also for the tables and partitions to come.
alter default privileges for role secateur in schema public grant select on tables to secateur_reader;
grant select on all tables in schema public to secateur_reader;
