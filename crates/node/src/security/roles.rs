//! The table of roles: every gRPC method stands here, and one that does not is refused. (HTTP
//! routes name their role where they are made, in `http::routes`.)

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing: whether the node lives.
    Open,
    /// May look at everything.
    Read,
    /// Speaks for another node of the mesh.
    Peer,
    /// May change things.
    Admin,
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
            "AckExported",
            "AckArchived",
            "Verify",
        ],
        Role::Admin,
    ),
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
