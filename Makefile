# The commands that a contributor or an operator needs. CI runs `make test`.

CARGO ?= cargo
# Both counts are floors: the programme checks at least so many distinct images.
CRASH_IMAGES ?= 300000
SIDECAR_SEEDS ?= 300
FUZZ_SECONDS ?= 15
# Optional features that are linted and tested with the rest: in runs of their own most of what they share
# with it would be compiled twice. The product is built without them.
FEATURES := --features secateur-sidecar/libp2p,secateur/aerospike,secateur/ic
# The simulator plants bugs in our crates, so it is not built with the others. It is built for all of them together
# all the same: then what they depend on has the same features, and is compiled once.
SIMULATOR := --workspace $(FEATURES) --locked --test simulator --test stable --bin secateur-sim
# In the build that its tests use, with their assertions: a second build of everything costs more than the programme
# runs longer.
SIM := $(or $(CARGO_TARGET_DIR),target)/debug/secateur-sim
NAME ?=

.PHONY: demo test prepare lint unit simulator canister canister-test programme fuzz bench docs e2e-s3 e2e-aerospike

demo:
	$(CARGO) run --release -- demo

test: prepare lint unit simulator canister-test programme fuzz
	@echo "everything passed"

# Installs what the tests need on Debian when root, and says what is missing otherwise.
prepare:
	@scripts/prepare

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(FEATURES) --locked
	$(CARGO) clippy -p secateur-core -p secateur-store --no-default-features --locked
	$(CARGO) clippy -p secateur --all-targets --locked

# The node is tested without the simulator beside it, so that no planted bug is compiled in.
unit:
	scripts/test --workspace --exclude secateur-sim $(FEATURES) --locked

# Its suite is about one layout at a time.
simulator:
	SECATEUR_TEST_LAYOUT=packed scripts/test $(SIMULATOR)
	SECATEUR_TEST_LAYOUT=per-block scripts/test $(SIMULATOR)

# The wasm, target/canister/secateur.wasm (docs/canister.md).
canister:
	scripts/canister

# In a host that meters it; where no toolchain is to be had it says that it skipped them.
canister-test:
	CANISTER_TESTED="--workspace --exclude secateur-sim $(FEATURES)" scripts/canister test

programme:
	$(CARGO) test --quiet --no-run $(SIMULATOR)
	$(SIM) crash --images $(CRASH_IMAGES)
	$(SIM) corrupt
	$(SIM) faults
	$(SIM) saboteurs
	$(SIM) sidecar --seeds $(SIDECAR_SEEDS)
	$(SIM) sidecar --saboteurs
	$(SIM) kill

fuzz:
	fuzz/run $(FUZZ_SECONDS)

bench:
	bench/run $(NAME)

# Against any S3 service: S3_URL=s3://bucket/prefix, and AWS_ENDPOINT_URL, AWS_REGION and the
# credentials in the environment (docs/archive.md). Objects stay there.
S3_URL ?=
e2e-s3:
	@test -n "$(S3_URL)" || { echo "e2e-s3: say where: make e2e-s3 S3_URL=s3://bucket/prefix"; exit 2; }
	SECATEUR_TEST_S3_URL="$(S3_URL)" $(CARGO) nextest run --workspace \
		--locked --run-ignored only -E 'test(the_service_of_the_environment) + test(e2e_s3)'

# Against an Aerospike cluster: AEROSPIKE_HOSTS=host:3000, AEROSPIKE_NAMESPACE (test), and AEROSPIKE_USER and
# AEROSPIKE_PASSWORD if it asks for them; AEROSPIKE_OPTIONS is added to the address. Each test has sets of its own,
# and truncates them (docs/aerospike.md). A namespace takes 256 secondary indexes, which are 51 stores.
AEROSPIKE_HOSTS ?=
e2e-aerospike:
	@test -n "$(AEROSPIKE_HOSTS)" || { echo "e2e-aerospike: say where: make e2e-aerospike AEROSPIKE_HOSTS=host:3000"; exit 2; }
	AEROSPIKE_HOSTS="$(AEROSPIKE_HOSTS)" $(CARGO) nextest run -p secateur-utxo --features aerospike \
		--locked --test aerospike --run-ignored only --test-threads 16

docs:
	$(CARGO) doc --workspace --no-deps --locked
	@echo "open target/doc/secateur_store/index.html"
