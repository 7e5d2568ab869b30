-- Retention notes from which block on rows are kept, in the transaction that drops them: readers are
-- told of what is below, whoever dropped it.

-- Drops the lowest range if all of its blocks are older than `cutoff` (seconds since 1970) and
-- newer blocks are there. One range at a time, so that the locks are short.
create or replace function secateur_retain(cutoff bigint)
returns table (blocks_gone bigint, rows_gone bigint, more boolean)
language plpgsql set search_path from current set lock_timeout = '5s' as $$
declare
    part record;
    counted bigint;
    kept bigint := 0;
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
        select p.parent, p.child, p.past from secateur_partitions() p
        where p.first = (select min(q.first) from secateur_partitions() q)
        order by array_position(array['blocks', 'txs', 'logs'], p.parent)
    loop
        kept := greatest(kept, part.past);
        execute format('lock table %I in access exclusive mode', part.parent);
        execute format('select count(*) from %s', part.child) into counted;
        if part.parent = 'blocks' then
            blocks_gone := counted;
        end if;
        rows_gone := rows_gone + counted;
        execute format('drop table %s', part.child);
    end loop;
    -- A range without a block is a gap, and `gaps` says so.
    if blocks_gone > 0 then
        insert into meta (key, value) values ('kept_from', kept::text)
        on conflict (key) do update
            set value = greatest(meta.value::bigint, excluded.value::bigint)::text;
    end if;
    more := secateur_range_is_due(cutoff);
    return next;
end
$$;
