-- Jobs of pg_cron for one index. Run it in the index's database, again whenever a value below
-- changes: a job of the same name is replaced, not doubled.
--
--   psql -X -v ON_ERROR_STOP=1 -v retention_days=90 -f ops/postgres/cron.sql postgres://…/index
--
-- The worker does all of this too. What the jobs call are the functions of the index's migrations,
-- which take turns with it, so both may run.

\if :{?retention_days}
\else
    \set retention_days 90
\endif

create extension if not exists pg_cron;

-- Ranges ahead of the cursor: a worker that was away finds them made.
select cron.schedule('secateur-ranges', '*/10 * * * *', 'select secateur_make_ahead(2)');

-- Whole ranges whose newest block is older than so many days go, at a quiet hour.
select cron.schedule(
    'secateur-retention',
    '17 3 * * *',
    format('select secateur_retain_days(%s)', :'retention_days'::integer)
);

-- How much the index grew, into metrics_daily, just before the day ends in UTC.
select cron.schedule(
    'secateur-growth',
    '55 23 * * *',
    $$select secateur_note_growth((clock_timestamp() at time zone 'UTC')::date)$$
);
