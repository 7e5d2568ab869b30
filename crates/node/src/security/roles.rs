//! The table of roles: every gRPC method stands here, and one that does not is refused. (HTTP
//! routes name their role where they are made, in `http::routes`.)

/// What a request needs, and what a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing: whether the node lives.
    Open,
    /// May look at everything.
    Read,
    /// May look at everything, and acknowledge what it has: an index and its archiver.
    Consumer,
    /// Speaks for another node of the mesh.
    Peer,
    /// May change things.
    Admin,
}

impl Role {
    /// Whether a token of this role may do what needs the other one.
    pub(crate) fn may(self, wanted: Self) -> bool {
        match self {
            Self::Admin => true,
            Self::Consumer => matches!(wanted, Self::Open | Self::Read | Self::Consumer),
            Self::Read | Self::Peer | Self::Open => wanted == Self::Open || wanted == self,
        }
    }

    /// Whether it is for calls that change something: those are recorded.
    pub(crate) fn changes(self) -> bool {
        matches!(self, Self::Consumer | Self::Peer | Self::Admin)
    }
}

const GRPC: &[(&str, &[&str], Role)] = &[
    ("secateur.export.v1.Export", &["GetHead", "ExportBlocks"], Role::Read),
    ("secateur.export.v2.Export", &["Stream"], Role::Read),
    (
        "secateur.history.v1.History",
        &[
            "GetBlock",
            "GetReceipt",
            "GetTransaction",
            "GetStatus",
            "GetPlan",
            "ListHolds",
            "ListReports",
            "ExplainBlock",
            "ExplainTransaction",
            "GetPolicy",
        ],
        Role::Read,
    ),
    (
        "secateur.history.v1.Admin",
        &[
            "Append",
            "QueueTransactions",
            "SetFinalized",
            "Rollback",
            "SetPolicy",
            "SetPruning",
            "Prune",
            "RegisterConsumer",
            "RemoveConsumer",
            "Verify",
        ],
        Role::Admin,
    ),
    // A consumer says what it has. What may be cut then is still the holds' and the policy's to say,
    // and which consumers there are is the administrator's.
    ("secateur.history.v1.Admin", &["AckExported", "AckArchived"], Role::Consumer),
    ("secateur.sidecar.v1.Gossip", &["Publish", "Missing"], Role::Peer),
    ("secateur.sidecar.v1.Sidecar", &["GetBlobs", "GetUndecided", "Fetch"], Role::Read),
    (
        "secateur.sidecar.v1.Sidecar",
        &[
            "StoreProposal",
            "StoreDecided",
            "MarkDecided",
            "DropRound",
            "SetFinalized",
            "PruneBlobs",
            "Retry",
            "Rebroadcast",
        ],
        Role::Admin,
    ),
    ("secateur.utxo.v1.Pruner", &["Status", "Plan", "Jobs", "Explain"], Role::Read),
    ("secateur.utxo.v1.Pruner", &["Prune", "Trigger"], Role::Admin),
    ("secateur.utxo.v1.Store", &["Get"], Role::Read),
    (
        "secateur.utxo.v1.Store",
        &["Create", "Spend", "Unspend", "SetConflicting", "SetMined", "UnsetMined"],
        Role::Admin,
    ),
    ("pruner.PrunerAPI", &["HealthGRPC"], Role::Open),
    ("grpc.health.v1.Health", &["Check", "Watch", "List"], Role::Open),
    ("grpc.reflection.v1.ServerReflection", &["ServerReflectionInfo"], Role::Read),
    ("grpc.reflection.v1alpha.ServerReflection", &["ServerReflectionInfo"], Role::Read),
];

/// The role of a gRPC method by its path, `/package.Service/Method`.
pub(crate) fn grpc_role(path: &str) -> Option<Role> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    GRPC.iter()
        .find(|(name, methods, _)| *name == service && methods.contains(&method))
        .map(|(_, _, role)| *role)
}
