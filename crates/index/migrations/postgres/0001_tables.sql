-- What an index holds. The same tables and columns as in SQLite; docs/format/index-schema.md says
-- what each of them means. The three big tables are cut into ranges of 100,000 blocks from the
-- start: retention drops whole ranges, and a read of some blocks opens only theirs. PostgreSQL wants
-- the column that ranges are made of in every unique key: hence (hash, block_number, …).

create table meta (
    key text primary key,
    value text not null
);

create table blocks (
    number bigint not null check (number >= 0),
    hash bytea check (octet_length(hash) = 32),
    parent_hash bytea check (octet_length(parent_hash) = 32),
    ts bigint check (ts >= 0),
    tx_count integer not null,
    primary key (number)
) partition by range (number);

create index blocks_hash on blocks (hash);

-- nonce and gas are whole 64 bits on the wire, which bigint does not hold. A block of an opaque chain
-- may hold an id twice, hence its place in the key.
create table txs (
    hash bytea not null check (octet_length(hash) = 32),
    block_number bigint not null,
    tx_index integer not null,
    "from" bytea check (octet_length("from") = 20),
    "to" bytea check (octet_length("to") = 20),
    nonce numeric(20, 0),
    value numeric(78, 0),
    gas numeric(20, 0),
    status boolean,
    gas_used numeric(20, 0),
    contract_address bytea check (octet_length(contract_address) = 20),
    primary key (hash, block_number, tx_index)
) partition by range (block_number);

create unique index txs_place on txs (block_number, tx_index);
create index txs_from on txs ("from", block_number desc, tx_index desc);
create index txs_to on txs ("to", block_number desc, tx_index desc);
create index txs_created on txs (contract_address, block_number desc, tx_index desc)
    where contract_address is not null;

create table logs (
    block_number bigint not null,
    log_index integer not null,
    tx_index integer not null,
    tx_hash bytea not null check (octet_length(tx_hash) = 32),
    address bytea not null check (octet_length(address) = 20),
    topic0 bytea check (octet_length(topic0) = 32),
    topic1 bytea check (octet_length(topic1) = 32),
    topic2 bytea check (octet_length(topic2) = 32),
    topic3 bytea check (octet_length(topic3) = 32),
    data bytea not null,
    primary key (block_number, log_index)
) partition by range (block_number);

create index logs_address_topic on logs (address, topic0, block_number desc, log_index desc);
create index logs_address on logs (address, block_number desc, log_index desc);
create index logs_topic on logs (topic0, block_number desc, log_index desc);

create table archive_parts (
    block_from bigint primary key,
    block_to bigint not null check (block_to >= block_from),
    provider text not null,
    object_key text not null,
    codec text not null,
    size_bytes bigint not null check (size_bytes >= 0),
    sha256 bytea not null check (octet_length(sha256) = 32),
    parent_hash bytea not null check (octet_length(parent_hash) = 32),
    last_hash bytea not null check (octet_length(last_hash) = 32)
);

create table gaps (
    block_from bigint primary key,
    block_to bigint not null check (block_to >= block_from),
    reason text not null,
    noted_at bigint not null
);

create table metrics_daily (
    day date primary key,
    raw_bytes bigint not null default 0,
    compressed_bytes bigint not null default 0,
    growth_bytes bigint not null default 0,
    blocks_ingested bigint not null default 0,
    errors bigint not null default 0
);

-- Ranges of a backfill that several workers share. A worker holds a range as long as `epoch` is the
-- one it was given; blocks below `next` are committed. Ranges below the cursor are removed.
create table leases (
    first bigint primary key check (first >= 0),
    past bigint not null,
    next bigint not null,
    epoch bigint not null default 0,
    owner text,
    expires_at timestamptz,
    check (first < past and next between first and past)
);

-- The one worker that follows the head, held in the same way.
create table head_lease (
    one boolean primary key default true check (one),
    epoch bigint not null default 0,
    owner text,
    expires_at timestamptz
);

insert into head_lease default values;
