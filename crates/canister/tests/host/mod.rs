//! A host for the canister's wasm: what the Internet Computer is to it, as far as it asks.
//!
//! A message runs to its end and then its heap, its stable memory, its timer and its calls stay; one
//! that traps, and every query, leaves all of them as they were. Instructions are counted as fuel,
//! with a charge for each byte that goes between the two memories.

mod instrument;
mod stable;
mod system;

use std::collections::VecDeque;

use candid::Principal;
use candid::utils::ArgumentEncoder;
use candid::{CandidType, Deserialize};
use wasmi::{Engine, Linker, Memory, Module, Store, Val};

use self::stable::Stable;

/// What one message may use: the limit of a query on the Internet Computer, and an eighth of an update's.
pub const LIMIT: u64 = 5_000_000_000;
/// The name of the table in the instrumented module.
const TABLE: &str = "host table";

/// Where a message came to an end too soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap(pub String);

/// A call of the canister to itself.
#[derive(Debug, Clone, Default)]
struct Call {
    method: String,
    arg: Vec<u8>,
    reply: (u32, u32),
    reject: (u32, u32),
}

/// What the message that runs knows and has done.
#[derive(Debug, Default)]
struct Message {
    method: String,
    caller: Vec<u8>,
    arg: Vec<u8>,
    reject: Option<String>,
    reply: Vec<u8>,
    replied: bool,
    accepted: bool,
    call: Option<Call>,
    calls: Vec<Call>,
}

/// Everything that system calls see.
struct World {
    memory: Option<Memory>,
    stable: Stable,
    message: Message,
    id: Principal,
    controllers: Vec<Principal>,
    nanos: u64,
    timer: u64,
    given: u64,
    /// Writes to stable memory after which the next one traps.
    writes_left: Option<u64>,
    printed: Vec<String>,
}

/// What a message did.
#[derive(Debug, Clone, Default)]
pub struct Ran {
    /// Its reply.
    pub reply: Vec<u8>,
    /// What it used.
    pub fuel: u64,
    /// Whether it said that it takes the message.
    pub accepted: bool,
}

/// What a canister pays for, as it adds up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bill {
    /// Messages that ran, queries apart.
    pub messages: u64,
    /// What they used.
    pub fuel: u64,
    /// Messages that came from outside, and their bytes.
    pub ingress: (u64, u64),
    /// Calls of the canister to itself, and their bytes.
    pub calls: (u64, u64),
}

/// A canister that is installed.
pub struct Host {
    engine: Engine,
    module: Module,
    store: Store<World>,
    instance: wasmi::Instance,
    calls: VecDeque<Call>,
    /// What every message may use.
    pub limit: u64,
    /// The dearest message since it was set to 0, and what it was.
    pub dearest: (u64, String),
    /// Everything since it was set to nothing.
    pub bill: Bill,
}

/// What runs: an exported function, or one of the table with its argument.
enum Entry<'a> {
    Named(&'a str),
    Callback(u32, u32),
}

fn linked(engine: &Engine) -> Linker<World> {
    let mut linker = Linker::new(engine);
    system::link(&mut linker);
    linker
}

impl Host {
    /// A canister with this code and nothing in it; its init is not called.
    pub fn new(wasm: &[u8], controllers: Vec<Principal>) -> Self {
        Self::over(wasm, controllers, Stable::default())
    }

    /// A canister over a stable memory that is there.
    pub fn with_image(wasm: &[u8], controllers: Vec<Principal>, image: &[u8]) -> Self {
        Self::over(wasm, controllers, Stable::of(image))
    }

    fn over(wasm: &[u8], controllers: Vec<Principal>, stable: Stable) -> Self {
        let mut config = wasmi::Config::default();
        config.consume_fuel(true).compilation_mode(wasmi::CompilationMode::Lazy);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, instrument::with_table(wasm, TABLE)).unwrap();
        let world = World {
            memory: None,
            stable,
            message: Message::default(),
            id: Principal::from_slice(&[0, 0, 0, 0, 0, 0, 0, 7, 1, 1]),
            controllers,
            nanos: 1_800_000_000_000_000_000,
            timer: 0,
            given: 0,
            writes_left: None,
            printed: Vec::new(),
        };
        let mut store = Store::new(&engine, world);
        store.set_fuel(LIMIT).unwrap();
        let instance = linked(&engine).instantiate_and_start(&mut store, &module).unwrap();
        store.data_mut().memory = instance.get_memory(&store, "memory");
        let calls = VecDeque::new();
        let dearest = (0, String::new());
        let bill = Bill::default();
        Self { engine, module, store, instance, calls, limit: LIMIT, dearest, bill }
    }

    /// The canister's id.
    pub fn id(&self) -> Principal {
        self.store.data().id
    }

    /// Everything in stable memory.
    pub fn image(&self) -> Vec<u8> {
        self.store.data().stable.image()
    }

    /// Lets time pass.
    pub fn advance(&mut self, millis: u64) {
        self.store.data_mut().nanos += millis * 1_000_000;
    }

    /// The next messages trap at their write to stable memory after so many.
    pub fn trap_after_writes(&mut self, writes: Option<u64>) {
        self.store.data_mut().writes_left = writes;
    }

    /// Stable memory is as long as it gets.
    pub fn gives_no_more_memory(&mut self) {
        self.store.data_mut().stable.is_all = true;
    }

    fn heap(&self) -> &[u8] {
        self.store.data().memory.unwrap().data(&self.store)
    }

    /// A new instance with the heap as it was.
    fn restore(&mut self, heap: &[u8]) {
        self.store.set_fuel(u64::MAX).unwrap();
        let linker = linked(&self.engine);
        self.instance = linker.instantiate_and_start(&mut self.store, &self.module).unwrap();
        let memory = self.instance.get_memory(&self.store, "memory").unwrap();
        let pages = (heap.len() as u64 / 65_536) - memory.size(&self.store);
        memory.grow(&mut self.store, pages).unwrap();
        memory.data_mut(&mut self.store).copy_from_slice(heap);
        self.store.data_mut().memory = Some(memory);
    }

    fn enter(&mut self, entry: &Entry<'_>) -> Result<(), wasmi::Error> {
        match entry {
            Entry::Named(name) => {
                let entry = self.instance.get_typed_func::<(), ()>(&self.store, name)?;
                entry.call(&mut self.store, ())
            }
            Entry::Callback(function, argument) => {
                let table = self.instance.get_table(&self.store, TABLE).unwrap();
                let found = table.get(&self.store, u64::from(*function));
                let Some(Val::FuncRef(wasmi::Ref::Val(function))) = found else {
                    return Err(wasmi::Error::new("no such function in the table"));
                };
                let argument = Val::I32(argument.cast_signed());
                function.call(&mut self.store, &[argument], &mut [])
            }
        }
    }

    /// Runs a message. Whether it stays if it ends well is said by `keep`.
    fn run(&mut self, entry: &Entry<'_>, message: Message, keep: bool) -> Result<Ran, Trap> {
        let heap = self.heap().to_vec();
        let limit = self.limit;
        let timer = self.store.data().timer;
        let name = match entry {
            Entry::Named(name) => (*name).to_owned(),
            Entry::Callback(..) => "callback".to_owned(),
        };
        let world = self.store.data_mut();
        (world.message, world.given) = (message, limit);
        world.stable.begin();
        self.store.set_fuel(limit).unwrap();
        let ended = self.enter(entry);
        let fuel = limit - self.store.get_fuel().unwrap_or(0);
        if keep {
            self.bill.messages += 1;
            self.bill.fuel += fuel;
        }
        if fuel > self.dearest.0 {
            self.dearest = (fuel, name);
        }
        let message = std::mem::take(&mut self.store.data_mut().message);
        let stays = keep && ended.is_ok();
        self.store.data_mut().stable.end(stays);
        if stays {
            self.calls.extend(message.calls);
        } else {
            self.store.data_mut().timer = timer;
            self.restore(&heap);
        }
        match ended {
            Ok(()) => Ok(Ran { reply: message.reply, fuel, accepted: message.accepted }),
            Err(error) => Err(Trap(error.to_string())),
        }
    }

    fn message(caller: Principal, method: &str, arg: Vec<u8>) -> Message {
        let (method, caller) = (method.to_owned(), caller.as_slice().to_vec());
        Message { method, caller, arg, ..Message::default() }
    }

    /// Installs: calls init with an argument.
    pub fn init(&mut self, caller: Principal, arg: &impl CandidType) -> Result<Ran, Trap> {
        let arg = candid::encode_one(arg).unwrap();
        self.run(&Entry::Named("canister_init"), Self::message(caller, "", arg), true)
    }

    /// Puts other code in the place of this one, over the same stable memory.
    pub fn upgrade(&mut self, wasm: &[u8], caller: Principal) -> Result<Ran, Trap> {
        self.module = Module::new(&self.engine, instrument::with_table(wasm, TABLE)).unwrap();
        self.calls.clear();
        self.store.data_mut().timer = 0;
        self.store.set_fuel(u64::MAX).unwrap();
        let linker = linked(&self.engine);
        self.instance = linker.instantiate_and_start(&mut self.store, &self.module).unwrap();
        self.store.data_mut().memory = self.instance.get_memory(&self.store, "memory");
        let message = Self::message(caller, "", Vec::new());
        self.run(&Entry::Named("canister_post_upgrade"), message, true)
    }

    /// Whether a call from outside is let in at all.
    pub fn is_let_in(&mut self, caller: Principal, method: &str) -> bool {
        let message = Self::message(caller, method, candid::encode_args(()).unwrap());
        let ran = self.run(&Entry::Named("canister_inspect_message"), message, false);
        ran.is_ok_and(|ran| ran.accepted)
    }

    /// An update with an encoded argument.
    pub fn update_raw(&mut self, caller: Principal, method: &str, arg: &[u8]) -> Result<Ran, Trap> {
        let own = caller == self.id();
        let paid = if own { &mut self.bill.calls } else { &mut self.bill.ingress };
        *paid = (paid.0 + 1, paid.1 + (method.len() + arg.len()) as u64);
        let message = Self::message(caller, method, arg.to_vec());
        self.run(&Entry::Named(&format!("canister_update {method}")), message, true)
    }

    /// A query with an encoded argument.
    pub fn query_raw(&mut self, caller: Principal, method: &str, arg: &[u8]) -> Result<Ran, Trap> {
        let message = Self::message(caller, method, arg.to_vec());
        self.run(&Entry::Named(&format!("canister_query {method}")), message, false)
    }

    /// An update, and its reply.
    pub fn update<T: CandidType + for<'d> Deserialize<'d>>(
        &mut self,
        caller: Principal,
        method: &str,
        args: impl ArgumentEncoder,
    ) -> Result<T, Trap> {
        let ran = self.update_raw(caller, method, &candid::encode_args(args).unwrap())?;
        Ok(candid::decode_one(&ran.reply).unwrap())
    }

    /// A query, and its reply.
    pub fn query<T: CandidType + for<'d> Deserialize<'d>>(
        &mut self,
        method: &str,
        args: impl ArgumentEncoder,
    ) -> Result<T, Trap> {
        let args = candid::encode_args(args).unwrap();
        let ran = self.query_raw(Principal::anonymous(), method, &args)?;
        Ok(candid::decode_one(&ran.reply).unwrap())
    }

    /// Whether the timer is due.
    pub fn timer_is_due(&self) -> bool {
        let world = self.store.data();
        world.timer != 0 && world.timer <= world.nanos
    }

    /// Lets the timer ring once, and what it calls run to its end. The traps of those are the answer:
    /// the canister hears of them, as of any failed call.
    pub fn ring(&mut self) -> Vec<Trap> {
        let mut traps = Vec::new();
        if !self.timer_is_due() {
            return traps;
        }
        self.store.data_mut().timer = 0;
        let message = Message::default();
        if let Err(trap) = self.run(&Entry::Named("canister_global_timer"), message, true) {
            traps.push(trap);
        }
        while let Some(call) = self.calls.pop_front() {
            let ran = self.update_raw(self.id(), &call.method, &call.arg);
            let (entry, message) = match ran {
                Ok(ran) => (call.reply, Message { arg: ran.reply, ..Message::default() }),
                Err(trap) => {
                    traps.push(trap.clone());
                    (call.reject, Message { reject: Some(trap.0), ..Message::default() })
                }
            };
            self.run(&Entry::Callback(entry.0, entry.1), message, true).unwrap();
        }
        traps
    }

    /// Lets the timer ring until it is quiet. No step may trap.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.timer_is_due() {
                return;
            }
            assert_eq!(self.ring(), [], "{:?}", self.store.data().printed);
        }
        panic!("the canister never rests");
    }

    /// The interface that the wasm says it has.
    pub fn interface(&mut self) -> String {
        self.store.set_fuel(u64::MAX).unwrap();
        let pointer = self.instance.get_typed_func::<(), u32>(&self.store, "get_candid_pointer");
        let from = pointer.unwrap().call(&mut self.store, ()).unwrap() as usize;
        let text = self.heap()[from..].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }
}
