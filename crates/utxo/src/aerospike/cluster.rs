//! Records on a cluster, through the official client.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aerospike::expressions::{self, Expression};
use aerospike::query::Filter;
use aerospike::{
    AdminPolicy, AuthMode, BasePolicy, BatchDeletePolicy, BatchOperation, BatchPolicy,
    BatchReadPolicy, BatchWritePolicy, Bin, Bins, Client, ClientPolicy, Expiration,
    GenerationPolicy, Host, Key, PartitionFilter, QueryPolicy, ReadModeAp, RecordExistsAction,
    Replica, Statement, Value, WritePolicy, operations,
};
use futures_util::StreamExt as _;
use futures_util::future::join_all;

use crate::UtxoError;
use crate::store::RoomLook;

use super::address::Address;
use super::answers::{self, Verdict, failed, verdict};
use super::records::{
    Change, Fields, Guard, Index, Name, Outcome, Query, Records, Stored, Usage, Write,
};
use super::storage::{self, Deletes, Node};
use super::{bins, index, read};

/// Records of one request at most, and about how many bytes.
const ROWS: usize = 256;
const BYTES: usize = 4 << 20;
/// How long the whole of a request may take, in milliseconds.
const TIMEOUT: u32 = 10_000;
/// How long finding the cluster may take.
const CONNECT: Duration = Duration::from_mins(1);
/// Answers without a record and without an end that a listing takes before it gives up.
const EMPTY: u32 = 8;
/// Longer than the steps of a server's clock of last updates.
const TICK: Duration = Duration::from_millis(20);
/// How long a node may take to say whether it takes more writes.
const ROOM: Duration = Duration::from_secs(3);
/// For questions about the cluster itself.
pub(super) const ADMIN: AdminPolicy = AdminPolicy { timeout: 10_000 };

/// Records in a namespace: a set for transactions, one for their pages and parts, one for the rest.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    address: Arc<Address>,
    durable: bool,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.address)
    }
}

/// Where each partition's listing goes on.
#[derive(Debug, Clone)]
pub struct Cursor(Arc<PartitionFilter>);

/// Who asks, from the environment.
fn login() -> Result<AuthMode, UtxoError> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    match (variable("AEROSPIKE_USER"), variable("AEROSPIKE_PASSWORD")) {
        (None, None) => Ok(AuthMode::None),
        (Some(user), Some(password)) => Ok(AuthMode::Internal(user, password)),
        _ => Err(UtxoError::Setting(
            "only one of AEROSPIKE_USER and AEROSPIKE_PASSWORD is set".into(),
        )),
    }
}

/// What every request has. It is always the master copy that is asked, so that what a write relies on is
/// what it meets.
fn base(retries: usize) -> BasePolicy {
    BasePolicy {
        total_timeout: TIMEOUT,
        socket_timeout: TIMEOUT,
        max_retries: retries,
        replica: Replica::Master,
        read_mode_ap: ReadModeAp::All,
        ..BasePolicy::default()
    }
}

fn batch_policy(retries: usize) -> BatchPolicy {
    BatchPolicy { base_policy: base(retries), ..BatchPolicy::default() }
}

/// What the server looks at itself, in the step that changes the record.
fn guarded(guard: Guard) -> Expression {
    use expressions::{and, bin_exists, eq, int_bin, int_val, le, not};
    match guard {
        Guard::Due(height) => and(vec![
            le(int_bin(bins::DELETE_AT), int_val(height)),
            not(bin_exists(bins::PRESERVE_UNTIL)),
            eq(int_bin(bins::HELD), int_val(0)),
            not(bin_exists(bins::CUT)),
        ]),
        Guard::Cut => bin_exists(bins::CUT),
    }
}

/// Not cut, and not due at a height.
fn stays(height: i64) -> Expression {
    use expressions::{and, bin_exists, gt, int_bin, int_val, not, or};
    let later = gt(int_bin(bins::DELETE_AT), int_val(height));
    and(vec![not(bin_exists(bins::CUT)), or(vec![not(bin_exists(bins::DELETE_AT)), later])])
}

/// Puts things into requests that are neither too many nor too long.
fn bundles<T>(all: Vec<T>, weight: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut bundles, mut bundle, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
    for one in all {
        let more = weight(&one);
        if bundle.len() == ROWS || !bundle.is_empty() && bytes.saturating_add(more) > BYTES {
            bundles.push(std::mem::take(&mut bundle));
            bytes = 0;
        }
        bytes = bytes.saturating_add(more);
        bundle.push(one);
    }
    bundles.extend((!bundle.is_empty()).then_some(bundle));
    bundles
}

/// About how many bytes a record has that is asked for.
const fn expected(name: &Name) -> usize {
    match name {
        Name::Tx(_) | Name::Page(..) => 1 << 14,
        Name::Part(..) => bins::PART,
        Name::Meta(_) => 1 << 10,
    }
}

fn weight(write: &Write) -> usize {
    let (Change::Create(fields) | Change::Put(fields) | Change::Update { fields, .. }) =
        &write.change
    else {
        return 64;
    };
    let bytes = fields.values().map(|value| match value {
        Value::Blob(bytes) => bytes.len(),
        Value::String(text) => text.len(),
        _ => 8,
    });
    bytes.sum()
}

impl Cluster {
    /// Finds the cluster, and makes it ready for questions.
    pub(super) async fn open(address: &Address) -> Result<Self, UtxoError> {
        let policy =
            ClientPolicy { auth_mode: login()?, timeout: 5_000, ..ClientPolicy::default() };
        let hosts: Vec<Host> =
            address.hosts.iter().map(|(host, port)| Host::new(host, *port)).collect();
        let client = tokio::time::timeout(CONNECT, Client::new(&policy, &hosts)).await;
        let client = client
            .map_err(|_| UtxoError::Store {
                reason: format!("{address} did not answer within {} s", CONNECT.as_secs()),
                retryable: true,
            })?
            .map_err(|error| failed(&error))?;
        let durable = Self::vetted(&client, address).await?;
        index::prepare(&client, address).await?;
        Ok(Self { client, address: Arc::new(address.clone()), durable })
    }

    /// Whether deletions leave tombstones there. A cluster that has not the namespace, or brings deleted
    /// records back, is refused before anything is written.
    async fn vetted(client: &Client, address: &Address) -> Result<bool, UtxoError> {
        let about = format!("namespace/{}", address.namespace);
        let commands = ["namespaces", "edition", "release", about.as_str()];
        let mut said = Vec::new();
        for node in client.nodes() {
            said.push(node.info(&ADMIN, &commands).await.map_err(|error| failed(&error))?);
        }
        if said.is_empty() {
            let reason = format!("{address}: the cluster has no node that answers");
            return Err(UtxoError::Store { reason, retryable: true });
        }
        let mut nodes = Vec::new();
        let mut names = BTreeSet::new();
        for said in &said {
            let text = |command: &str| said.get(command).map_or("", String::as_str);
            let there = storage::namespaces(text("namespaces"))?;
            // A cluster need not have a namespace on each of its nodes.
            if there.contains(address.namespace.as_str()) {
                let (edition, release) = (text("edition"), text("release"));
                nodes.push(Node { edition, release, namespace: text(&about) });
            }
            names.extend(there);
        }
        if nodes.is_empty() {
            return Err(UtxoError::Setting(format!(
                "the Aerospike cluster has no namespace {}; it has {}",
                address.namespace,
                Vec::from_iter(names).join(", ")
            )));
        }
        let Deletes { durable, warning } = storage::deletes(address, &nodes)?;
        if let Some(warning) = warning {
            tracing::warn!(namespace = address.namespace, warning, "aerospike storage");
        }
        Ok(durable)
    }

    /// Removes everything.
    pub(super) async fn erase(&self) -> Result<(), UtxoError> {
        let namespace = &self.address.namespace;
        // A server removes what is older than now in milliseconds: what was written in this one stays for ever.
        tokio::time::sleep(TICK).await;
        for set in self.sets() {
            let truncated = self.client.truncate(&ADMIN, namespace, &set, 0).await;
            done(truncated)?;
        }
        for index in Index::ALL {
            let (set, name) = (&self.address.set, index::name(&self.address, index));
            let dropped = self.client.drop_index(&ADMIN, namespace, set, &name).await;
            done(dropped.map(drop))?;
        }
        Ok(())
    }

    fn sets(&self) -> [String; 3] {
        ["", "_pages", "_meta"].map(|suffix| format!("{}{suffix}", self.address.set))
    }

    fn key(&self, name: &Name) -> Result<Key, UtxoError> {
        let [txs, pages, meta] = self.sets();
        let behind = |txid: &[u8; 32], kind: u8, n: u32| {
            let key = txid.iter().copied().chain([kind]).chain(n.to_be_bytes());
            Value::Blob(key.collect())
        };
        let (set, key) = match name {
            Name::Tx(txid) => (txs, Value::Blob(txid.0.to_vec())),
            Name::Page(txid, page) => (pages, behind(&txid.0, b'p', *page)),
            Name::Part(txid, part) => (pages, behind(&txid.0, b'b', *part)),
            Name::Meta(name) => (meta, Value::String(name.clone())),
        };
        Key::new(self.address.namespace.as_str(), set, key).map_err(|error| failed(&error))
    }

    fn operation(&self, write: Write) -> Result<BatchOperation, UtxoError> {
        let key = self.key(&write.name)?;
        let (action, generation, fields, guard) = match write.change {
            Change::Delete { guard } => {
                let policy = BatchDeletePolicy {
                    durable_delete: self.durable,
                    filter_expression: guard.map(guarded),
                    ..BatchDeletePolicy::default()
                };
                return Ok(BatchOperation::delete(&policy, key));
            }
            Change::Create(fields) => (RecordExistsAction::CreateOnly, None, fields, None),
            Change::Put(fields) => (RecordExistsAction::Update, None, fields, None),
            Change::Update { generation, fields, guard } => {
                (RecordExistsAction::UpdateOnly, Some(generation), fields, guard)
            }
        };
        let policy = BatchWritePolicy {
            record_exists_action: action,
            generation_policy: expects(generation),
            generation: generation.unwrap_or(0),
            // A namespace may have a time after which records end by themselves; these do not.
            expiration: Expiration::Never,
            filter_expression: guard.map(guarded),
            ..BatchWritePolicy::default()
        };
        let puts = fields.into_iter().map(|(bin, value)| operations::put(&Bin::new(bin, value)));
        Ok(BatchOperation::write(&policy, key, puts.collect::<Vec<_>>()))
    }

    /// How many records a query finds.
    async fn counted(&self, policy: &QueryPolicy, query: Query) -> Result<u64, UtxoError> {
        let all = PartitionFilter::all();
        let records = self.client.query(policy, all, self.statement(query)).await;
        let mut records = records.map_err(|error| failed(&error))?.into_stream();
        let mut count = 0;
        while let Some(record) = records.next().await {
            record.map_err(|error| failed(&error))?;
            count += 1;
        }
        Ok(count)
    }

    fn statement(&self, query: Query) -> Statement {
        let address = &self.address;
        let wanted = if query.bins.is_empty() { Bins::None } else { Bins::from(query.bins) };
        let mut statement =
            Statement::new(address.namespace.as_str(), address.set.as_str(), wanted);
        statement.set_filter(Filter::range(query.index.bin(), 0_i64, query.to));
        statement
    }
}

/// What an answer to a command comes to, in capitals or not.
fn done(answer: aerospike::errors::Result<()>) -> Result<(), UtxoError> {
    match answer {
        Err(error) if !answers::is_ok(&error) => Err(failed(&error)),
        _ => Ok(()),
    }
}

const fn expects(generation: Option<u32>) -> GenerationPolicy {
    if generation.is_some() { GenerationPolicy::ExpectGenEqual } else { GenerationPolicy::None }
}

/// How an index is asked: for as long as it takes, but not without a sign of life.
fn query_policy() -> QueryPolicy {
    let base_policy = BasePolicy { total_timeout: 0, socket_timeout: 30_000, ..base(5) };
    QueryPolicy { base_policy, ..QueryPolicy::default() }
}

impl Records for Cluster {
    type Cursor = Cursor;

    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn read(
        &self,
        names: Vec<Name>,
        bins: &'static [&'static str],
    ) -> Result<Vec<Option<Stored>>, UtxoError> {
        let wanted = if bins.is_empty() { Bins::None } else { Bins::from(bins) };
        let policy = BatchReadPolicy::default();
        let mut found = Vec::with_capacity(names.len());
        for bundle in bundles(names, expected) {
            let keys = bundle.iter().map(|name| self.key(name));
            let mut rows = keys
                .map(|key| Ok(BatchOperation::read(&policy, key?, wanted.clone())))
                .collect::<Result<Vec<_>, UtxoError>>()?;
            let done = self.client.batch(&batch_policy(2), &mut rows).await;
            done.map_err(|error| failed(&error))?;
            for row in &mut rows {
                found.push(match verdict(row.result_code()) {
                    Verdict::Is(Outcome::Missing) => None,
                    Verdict::Is(Outcome::Done) => row.take_record().map(|record| Stored {
                        fields: record.bins,
                        generation: record.generation,
                    }),
                    Verdict::Is(Outcome::Changed) | Verdict::Failed => {
                        return Err(answers::row_failed(row.error()));
                    }
                });
            }
        }
        Ok(found)
    }

    async fn write(&self, writes: Vec<Write>) -> Result<Vec<Outcome>, UtxoError> {
        let mut outcomes = Vec::with_capacity(writes.len());
        for bundle in bundles(writes, weight) {
            let rows = bundle.into_iter().map(|write| self.operation(write));
            let mut rows = rows.collect::<Result<Vec<_>, UtxoError>>()?;
            // Not sent twice: an answer that was lost is found out by reading.
            let done = self.client.batch(&batch_policy(0), &mut rows).await;
            done.map_err(|error| failed(&error))?;
            for row in &rows {
                outcomes.push(match verdict(row.result_code()) {
                    Verdict::Is(outcome) => outcome,
                    Verdict::Failed => return Err(answers::row_failed(row.error())),
                });
            }
        }
        Ok(outcomes)
    }

    async fn query(
        &self,
        query: Query,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Stored>, Option<Cursor>), UtxoError> {
        let mut place =
            after.map_or_else(PartitionFilter::all, |cursor| PartitionFilter::clone(&cursor.0));
        let (mut found, mut empty) = (Vec::new(), 0);
        // A cluster divides what is asked for among its nodes, so that one answer may not fill a page.
        while found.len() < limit && !place.done() {
            let mut policy = query_policy();
            policy.max_records = (limit - found.len()) as u64;
            policy.base_policy.filter_expression = query.above.map(stays);
            let records = self.client.query(&policy, place, self.statement(query)).await;
            let mut records = records.map_err(|error| failed(&error))?.into_stream();
            let before = found.len();
            while let Some(record) = records.next().await {
                let record = record.map_err(|error| failed(&error))?;
                found.push(Stored { fields: record.bins, generation: record.generation });
            }
            place = records.partition_filter().ok_or_else(|| answers::stopped("it has no end"))?;
            empty = if found.len() == before { empty + 1 } else { 0 };
            if empty > EMPTY {
                return Err(answers::stopped("it goes on without a record"));
            }
        }
        let next = (!place.done()).then(|| Cursor(Arc::new(place)));
        Ok((found, next))
    }

    async fn count(&self, index: Index, to: i64) -> Result<u64, UtxoError> {
        let query = Query { index, to, bins: &[], above: None };
        let policy = QueryPolicy { include_bin_data: false, ..query_policy() };
        self.counted(&policy, query).await
    }

    async fn cut_and_due(&self, height: i64) -> Result<u64, UtxoError> {
        use expressions::{int_bin, int_val, le};
        let query = Query { index: Index::Cut, to: i64::MAX, bins: &[], above: None };
        let mut policy = QueryPolicy { include_bin_data: false, ..query_policy() };
        // Without the field it is not true either.
        let due = le(int_bin(bins::DELETE_AT), int_val(height));
        policy.base_policy.filter_expression = Some(due);
        self.counted(&policy, query).await
    }

    async fn room(&self) -> RoomLook {
        let about = format!("namespace/{}", self.address.namespace);
        let nodes = self.client.nodes();
        // All at once: one that hangs must not keep the others from being heard.
        let asked = nodes.iter().map(|node| async {
            let said = tokio::time::timeout(ROOM, node.info(&ADMIN, &[&about])).await;
            let said = said.map_err(|_| storage::silent(ROOM))?.map_err(|error| failed(&error))?;
            Ok(said.get(&about).cloned().unwrap_or_default())
        });
        storage::worst(join_all(asked).await)
    }

    async fn raise(&self, name: Name) -> Result<i64, UtxoError> {
        let policy = WritePolicy {
            base_policy: base(0),
            expiration: Expiration::Never,
            ..WritePolicy::default()
        };
        let one = Bin::new(read::NUMBER, Value::Int(1));
        let steps = [operations::add(&one), operations::get_bin(read::NUMBER)];
        let done = self.client.operate(&policy, &self.key(&name)?, &steps).await;
        let fields: Fields = done.map_err(|error| failed(&error))?.bins;
        answers::raised(&fields)
    }

    async fn usage(&self) -> Result<Usage, UtxoError> {
        let namespace = &self.address.namespace;
        let about = format!("namespace/{namespace}");
        let sets = self.sets().map(|set| format!("sets/{namespace}/{set}"));
        let commands: Vec<&str> = sets.iter().chain([&about]).map(String::as_str).collect();
        let mut usage = answers::Copies::default();
        for node in self.client.nodes() {
            let told = node.info(&ADMIN, &commands).await.map_err(|error| failed(&error))?;
            usage.copies(told.get(&about).map(String::as_str).unwrap_or_default());
            for (n, set) in sets.iter().enumerate() {
                usage.add(told.get(set).map(String::as_str).unwrap_or_default(), n == 0);
            }
        }
        Ok(usage.usage())
    }
}
