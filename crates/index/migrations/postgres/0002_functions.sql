-- What the worker and pg_cron both do, in one place. Every function keeps the search path it was
-- made with, so an index lives wholly in one schema, whichever that is.

-- The ranges that are there.
create function secateur_partitions()
returns table (parent text, child regclass, first bigint, past bigint)
language sql stable set search_path from current as $$
    select p.relname::text, c.oid::regclass, (b.bounds)[1]::bigint, (b.bounds)[2]::bigint
    from pg_class p
    join pg_inherits i on i.inhparent = p.oid
    join pg_class c on c.oid = i.inhrelid
    cross join lateral (
        select regexp_match(
            pg_get_expr(c.relpartbound, c.oid),
            'FROM \(''?(\d+)''?\) TO \(''?(\d+)''?\)'
        ) as bounds
    ) b
    where p.oid in ('blocks'::regclass, 'txs'::regclass, 'logs'::regclass)
$$;

-- The tables of the ranges that hold the blocks from `first` to below `past`, and that are not there.
-- The catalogue is read as a table: names that are looked up by the server come from a cache, which
-- may not know yet what another session made.
create function secateur_missing_partitions(first bigint, past bigint)
returns table (parent text, child text, start bigint)
language sql stable set search_path from current as $$
    select p.relname::text, p.relname || '_' || lpad(n::text, 12, '0'), n
    from pg_class p,
         generate_series(first / 100000 * 100000, past - 1, 100000::bigint) n
    where p.oid in ('blocks'::regclass, 'txs'::regclass, 'logs'::regclass)
    and not exists (
        select from pg_class c
        where c.relnamespace = p.relnamespace
        and c.relname = p.relname || '_' || lpad(n::text, 12, '0')
    )
$$;

-- Makes the ranges that hold the blocks from `first` to below `past`; says how many tables were
-- missing. A table is made on its own and then attached: that waits for no reader and no writer.
create function secateur_make_partitions(first bigint, past bigint)
returns integer
language plpgsql set search_path from current as $$
declare
    width constant bigint := 100000;
    made integer := 0;
    missing record;
begin
    if first < 0 or past <= first or past - first > 1000 * width then
        raise exception 'blocks % to % are no range to make partitions for', first, past
            using errcode = 'invalid_parameter_value';
    end if;
    if not exists (select from secateur_missing_partitions(first, past)) then
        return 0;
    end if;
    -- One maker at a time; the lock goes with the transaction.
    perform pg_advisory_xact_lock(x'5ec47e02'::bigint);
    for missing in select * from secateur_missing_partitions(first, past) loop
        execute format('create table %I (like %I including all)', missing.child, missing.parent);
        execute format(
            'alter table %I attach partition %I for values from (%s) to (%s)',
            missing.parent, missing.child, missing.start, missing.start + width
        );
        made := made + 1;
    end loop;
    return made;
end
$$;

-- Where the index goes on; null before its first block.
create function secateur_cursor()
returns bigint
language sql stable set search_path from current as $$
    select (value::json ->> 'block_number')::bigint from meta where key = 'cursor'
$$;

-- A cursor at the beginning of a block, as it is written.
create function secateur_cursor_text(number bigint)
returns text
language sql immutable as $$
    select format('{"v":1,"block_number":"%s","segment":0,"byte_offset":0}', number)
$$;

-- Moves the cursor to the beginning of a block.
create function secateur_set_cursor(number bigint)
returns void
language sql set search_path from current as $$
    insert into meta (key, value) values ('cursor', secateur_cursor_text(number))
    on conflict (key) do update set value = excluded.value
$$;

-- Makes the ranges that the cursor will reach next.
create function secateur_make_ahead(ranges integer default 2)
returns integer
language sql set search_path from current as $$
    select coalesce(
        (select secateur_make_partitions(c, c + 1 + ranges * 100000::bigint)
         from secateur_cursor() c where c is not null),
        0
    )
$$;

-- Drops the lowest range if all of its blocks are older than `cutoff` (seconds since 1970) and
-- newer blocks are there. One range at a time, so that the locks are short.
create function secateur_retain(cutoff bigint)
returns table (blocks_gone bigint, rows_gone bigint, more boolean)
language plpgsql set search_path from current set lock_timeout = '5s' as $$
declare
    part record;
    counted bigint;
begin
    blocks_gone := 0;
    rows_gone := 0;
    more := false;
    -- Two that drop at once would count the same rows.
    perform pg_advisory_xact_lock(x'5ec47e03'::bigint);
    if not secateur_range_is_due(cutoff) then
        return next;
        return;
    end if;
    -- The order in which a worker writes, so that neither waits for the other in a circle.
    for part in
        select p.parent, p.child from secateur_partitions() p
        where p.first = (select min(q.first) from secateur_partitions() q)
        order by array_position(array['blocks', 'txs', 'logs'], p.parent)
    loop
        execute format('lock table %I in access exclusive mode', part.parent);
        execute format('select count(*) from %s', part.child) into counted;
        if part.parent = 'blocks' then
            blocks_gone := counted;
        end if;
        rows_gone := rows_gone + counted;
        execute format('drop table %s', part.child);
    end loop;
    more := secateur_range_is_due(cutoff);
    return next;
end
$$;

-- Whether the lowest range may go.
create function secateur_range_is_due(cutoff bigint)
returns boolean
language plpgsql stable set search_path from current as $$
declare
    low record;
    newest bigint;
    holds boolean;
begin
    select p.first, p.past, p.child into low
    from secateur_partitions() p where p.parent = 'blocks' order by p.first limit 1;
    -- The newest block always stays, and nothing goes that a backfill has not passed.
    if low is null or secateur_cursor() is null or low.past >= secateur_cursor() then
        return false;
    end if;
    execute format('select exists (select from %s)', low.child) into holds;
    execute format('select ts from %s order by number desc limit 1', low.child) into newest;
    -- A range without a block was passed as a gap. A block without a time is never too old.
    return not holds or coalesce(newest < cutoff, false);
end
$$;

-- The same for a number of days, as many ranges as are due.
create function secateur_retain_days(days integer)
returns bigint
language plpgsql set search_path from current as $$
declare
    total bigint := 0;
    step record;
begin
    if days < 1 then
        raise exception 'retention of % days would drop everything', days
            using errcode = 'invalid_parameter_value';
    end if;
    loop
        select * into step
        from secateur_retain(extract(epoch from clock_timestamp())::bigint - days * 86400::bigint);
        total := total + step.rows_gone;
        exit when not step.more;
    end loop;
    return total;
end
$$;

-- The bytes of all tables of the index with their indexes.
create function secateur_size_bytes()
returns bigint
language sql stable set search_path from current as $$
    select coalesce(sum(pg_total_relation_size(t.relid)), 0)::bigint
    from unnest(array[
        'meta', 'blocks', 'txs', 'logs', 'archive_parts', 'gaps', 'metrics_daily', 'leases'
    ]) n,
    lateral pg_partition_tree(n::regclass) t
$$;

-- Counts what the index grew by since it was last asked to the given day.
create function secateur_note_growth(today date)
returns bigint
language plpgsql set search_path from current as $$
declare
    size bigint;
    before bigint;
begin
    -- The row is the turn: two that measure at once do not count the same growth twice.
    insert into meta (key, value) values ('size_bytes', '0') on conflict (key) do nothing;
    select value::bigint into before from meta where key = 'size_bytes' for update;
    size := secateur_size_bytes();
    update meta set value = size::text where key = 'size_bytes';
    insert into metrics_daily (day, growth_bytes) values (today, size - before)
    on conflict (day) do update
        set growth_bytes = metrics_daily.growth_bytes + excluded.growth_bytes;
    return size - before;
end
$$;

-- Makes leases of 1,000 blocks from the end of the last one (or the cursor, or `start` where there
-- is none) up to below `target`, at most `most` of them. They begin at multiples of 1,000, so none
-- lies in two ranges.
create function secateur_plan_leases(start bigint, target bigint, most integer)
returns bigint
language plpgsql set search_path from current as $$
declare
    place bigint;
    made bigint;
begin
    if secateur_cursor() is null then
        -- Another planner may be first.
        insert into meta (key, value) values ('cursor', secateur_cursor_text(start))
        on conflict (key) do nothing;
    end if;
    -- One planner at a time.
    perform from meta where key = 'cursor' for update;
    select greatest(secateur_cursor(), coalesce(max(l.past), 0)) into place from leases l;
    insert into leases (first, past, next)
    select greatest(n, place), least(n + 1000, target), greatest(n, place)
    from generate_series(place / 1000 * 1000, target - 1, 1000) n
    where n + 1000 > place and target > place
    order by n limit most;
    get diagnostics made = row_count;
    return made;
end
$$;

-- Moves the cursor to where the committed ranges end, and removes those below it.
create function secateur_advance_cursor()
returns bigint
language plpgsql set search_path from current as $$
declare
    place bigint;
    reached bigint;
begin
    -- One after another; each sees what the one before it committed.
    perform from meta where key = 'cursor' for update;
    place := secateur_cursor();
    loop
        select max(l.next) into reached from leases l where l.first <= place and place < l.next;
        exit when reached is null;
        place := reached;
    end loop;
    perform secateur_set_cursor(place);
    delete from leases where past <= place;
    return place;
end
$$;
