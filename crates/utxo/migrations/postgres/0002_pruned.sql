-- Ids of pruned records that nothing else would know (docs/format/utxo.md): coinbases, which no parent names, and
-- losers of double spends, which let their parents go, of which something was spent. Told again they would be
-- taken for new, with their outputs unspent. About a row for each block, for ever.
create table utxo_pruned (
    txid bytea primary key,
    pruned_at bigint not null
);

-- Those that are cut already go without another look. At which height they were cut nobody noted.
insert into utxo_pruned (txid, pruned_at)
    select txid, 0 from utxo_txs where cut and (coinbase or conflicting) and spent > 0;
