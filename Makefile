# The commands that a contributor or an operator needs. CI runs `make test`.

CARGO ?= cargo
# In the build that its tests use, with their assertions: a second build of everything costs more
# than the programme runs longer.
SIM := $(CARGO) run --quiet --locked -p secateur-sim --
# Both counts are floors: the programme checks at least so many distinct images.
CRASH_IMAGES ?= 300000
SIDECAR_SEEDS ?= 300
FUZZ_SECONDS ?= 15
# Optional features that are linted and tested with the rest: in runs of their own most of what they share
# with it would be compiled twice. The product is built without them, and so is the simulator.
FEATURES := --features secateur-sidecar/libp2p,secateur/aerospike,secateur/ic
NAME ?=

.PHONY: demo test prepare lint unit canister canister-test programme fuzz bench docs e2e-s3 e2e-aerospike

demo:
	$(CARGO) run --release -- demo

test: prepare lint unit canister-test programme fuzz
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
	SECATEUR_TEST_LAYOUT=packed scripts/test -p secateur-sim --locked
	SECATEUR_TEST_LAYOUT=per-block scripts/test -p secateur-sim --locked

# The wasm, target/canister/secateur.wasm (docs/canister.md).
canister:
	scripts/canister

# In a host that meters it; where no toolchain is to be had it says that it skipped them.
canister-test:
	CANISTER_TESTED="--workspace --exclude secateur-sim $(FEATURES)" scripts/canister test

programme:
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
# AEROSPIKE_PASSWORD if it asks for them. Each test has sets of its own, and truncates them (docs/aerospike.md).
AEROSPIKE_HOSTS ?=
e2e-aerospike:
	@test -n "$(AEROSPIKE_HOSTS)" || { echo "e2e-aerospike: say where: make e2e-aerospike AEROSPIKE_HOSTS=host:3000"; exit 2; }
	AEROSPIKE_HOSTS="$(AEROSPIKE_HOSTS)" $(CARGO) nextest run -p secateur-utxo --features aerospike \
		--locked --test aerospike --run-ignored only

docs:
	$(CARGO) doc --workspace --no-deps --locked
	@echo "open target/doc/secateur_store/index.html"
