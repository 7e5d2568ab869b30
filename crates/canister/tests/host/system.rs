//! The system calls of the Internet Computer that the canister makes.

use wasmi::{Caller, Error, Linker};

use super::{Call, World};

/// What a call of the system costs besides its bytes.
const BASE: u64 = 500;

fn trap(why: impl Into<String>) -> Error {
    Error::new(why.into())
}

/// Charges for a call and the bytes that it moves.
fn charge(caller: &mut Caller<'_, World>, bytes: usize) -> Result<(), Error> {
    let left = caller.get_fuel()?;
    let left = left.checked_sub(BASE + bytes as u64);
    let left = left.ok_or_else(|| trap("all fuel consumed by a system call"))?;
    caller.set_fuel(left)
}

fn read(caller: &mut Caller<'_, World>, from: u32, len: u32) -> Result<Vec<u8>, Error> {
    charge(caller, len as usize)?;
    let memory = caller.data().memory.ok_or_else(|| trap("no memory"))?;
    let from = from as usize;
    let bytes = memory.data(&*caller).get(from..from + len as usize);
    bytes.map(<[u8]>::to_vec).ok_or_else(|| trap("outside of the heap"))
}

fn write(caller: &mut Caller<'_, World>, to: u32, bytes: &[u8]) -> Result<(), Error> {
    charge(caller, bytes.len())?;
    let memory = caller.data().memory.ok_or_else(|| trap("no memory"))?;
    memory.write(caller, to as usize, bytes).map_err(|_| trap("outside of the heap"))
}

fn copy(
    caller: &mut Caller<'_, World>,
    of: &[u8],
    to: u32,
    offset: u32,
    len: u32,
) -> Result<(), Error> {
    let from = offset as usize;
    let bytes = of.get(from..from + len as usize).ok_or_else(|| trap("outside of the data"))?;
    write(caller, to, bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn size(len: usize) -> u32 {
    u32::try_from(len).unwrap()
}

/// An amount as the system writes it: 128 bits, the lowest first.
fn cycles(amount: u128) -> [u8; 16] {
    let mut bytes = amount.to_be_bytes();
    bytes.reverse();
    bytes
}

fn small(address: u64) -> Result<u32, Error> {
    u32::try_from(address).map_err(|_| trap("outside of the heap"))
}

/// Links all of them.
pub fn link(linker: &mut Linker<World>) {
    link_stable(linker).unwrap();
    link_message(linker).unwrap();
    link_calls(linker).unwrap();
    link_rest(linker).unwrap();
}

type Linked = Result<(), wasmi::errors::LinkerError>;
type In<'a> = Caller<'a, World>;

fn link_stable(linker: &mut Linker<World>) -> Linked {
    linker.func_wrap("ic0", "stable64_size", |caller: In<'_>| caller.data().stable.pages())?;
    linker.func_wrap("ic0", "stable64_grow", |mut caller: In<'_>, pages: u64| {
        caller.data_mut().stable.grow(pages)
    })?;
    linker.func_wrap(
        "ic0",
        "stable64_write",
        |mut caller: In<'_>, offset: u64, from: u64, len: u64| -> Result<(), Error> {
            let bytes = read(&mut caller, small(from)?, small(len)?)?;
            let world = caller.data_mut();
            match &mut world.writes_left {
                Some(0) => return Err(trap("a write that was to trap")),
                Some(left) => *left -= 1,
                None => {}
            }
            world.stable.write(offset, &bytes).ok_or_else(|| trap("outside of stable memory"))
        },
    )?;
    linker.func_wrap(
        "ic0",
        "stable64_read",
        |mut caller: In<'_>, to: u64, offset: u64, len: u64| -> Result<(), Error> {
            let len = small(len)? as usize;
            let bytes = caller.data().stable.read(offset, len).map(<[u8]>::to_vec);
            let bytes = bytes.ok_or_else(|| trap("outside of stable memory"))?;
            write(&mut caller, small(to)?, &bytes)
        },
    )?;
    Ok(())
}

fn link_message(linker: &mut Linker<World>) -> Linked {
    macro_rules! data {
        ($size:literal, $copy:literal, $of:expr) => {
            linker.func_wrap("ic0", $size, |caller: In<'_>| {
                let of: fn(&World) -> Vec<u8> = $of;
                size(of(caller.data()).len())
            })?;
            linker.func_wrap(
                "ic0",
                $copy,
                |mut caller: In<'_>, to: u32, offset: u32, len: u32| -> Result<(), Error> {
                    let of: fn(&World) -> Vec<u8> = $of;
                    let bytes = of(caller.data());
                    copy(&mut caller, &bytes, to, offset, len)
                },
            )?;
        };
    }
    data!("msg_caller_size", "msg_caller_copy", |world| world.message.caller.clone());
    data!("msg_arg_data_size", "msg_arg_data_copy", |world| world.message.arg.clone());
    data!("canister_self_size", "canister_self_copy", |world| world.id.as_slice().to_vec());
    data!("msg_method_name_size", "msg_method_name_copy", |world| {
        world.message.method.clone().into_bytes()
    });
    data!("msg_reject_msg_size", "msg_reject_msg_copy", |world| {
        world.message.reject.clone().unwrap_or_default().into_bytes()
    });
    linker.func_wrap("ic0", "msg_reject_code", |caller: In<'_>| {
        // A trap of the canister itself.
        if caller.data().message.reject.is_some() { 5_u32 } else { 0 }
    })?;
    linker.func_wrap(
        "ic0",
        "msg_reply_data_append",
        |mut caller: In<'_>, from: u32, len: u32| -> Result<(), Error> {
            let bytes = read(&mut caller, from, len)?;
            caller.data_mut().message.reply.extend(bytes);
            Ok(())
        },
    )?;
    linker.func_wrap("ic0", "msg_reply", |mut caller: In<'_>| -> Result<(), Error> {
        let message = &mut caller.data_mut().message;
        if message.replied {
            return Err(trap("it replied twice"));
        }
        message.replied = true;
        Ok(())
    })?;
    linker.func_wrap("ic0", "accept_message", |mut caller: In<'_>| {
        caller.data_mut().message.accepted = true;
    })?;
    Ok(())
}

fn link_calls(linker: &mut Linker<World>) -> Linked {
    linker.func_wrap(
        "ic0",
        "call_new",
        |mut caller: In<'_>,
         callee: u32,
         callee_len: u32,
         name: u32,
         name_len: u32,
         reply: u32,
         reply_env: u32,
         reject: u32,
         reject_env: u32|
         -> Result<(), Error> {
            let callee = read(&mut caller, callee, callee_len)?;
            if callee != caller.data().id.as_slice() {
                return Err(trap("it calls somebody else"));
            }
            let method = text(&read(&mut caller, name, name_len)?);
            let call = Call {
                method,
                arg: Vec::new(),
                reply: (reply, reply_env),
                reject: (reject, reject_env),
            };
            caller.data_mut().message.call = Some(call);
            Ok(())
        },
    )?;
    linker.func_wrap("ic0", "call_on_cleanup", |_: In<'_>, _: u32, _: u32| {})?;
    linker.func_wrap("ic0", "call_with_best_effort_response", |_: In<'_>, _: u32| {})?;
    linker.func_wrap(
        "ic0",
        "call_data_append",
        |mut caller: In<'_>, from: u32, len: u32| -> Result<(), Error> {
            let bytes = read(&mut caller, from, len)?;
            let call = caller.data_mut().message.call.as_mut();
            call.ok_or_else(|| trap("no call is being made"))?.arg.extend(bytes);
            Ok(())
        },
    )?;
    linker.func_wrap("ic0", "call_perform", |mut caller: In<'_>| -> Result<u32, Error> {
        let message = &mut caller.data_mut().message;
        let call = message.call.take().ok_or_else(|| trap("no call is being made"))?;
        message.calls.push(call);
        Ok(0)
    })?;
    linker.func_wrap(
        "ic0",
        "cost_call",
        |mut caller: In<'_>, _: u64, _: u64, to: u32| -> Result<(), Error> {
            write(&mut caller, to, &cycles(1_000_000))
        },
    )?;
    linker.func_wrap(
        "ic0",
        "canister_liquid_cycle_balance128",
        |mut caller: In<'_>, to: u32| -> Result<(), Error> {
            write(&mut caller, to, &cycles(1_000_000_000_000))
        },
    )?;
    Ok(())
}

fn link_rest(linker: &mut Linker<World>) -> Linked {
    linker.func_wrap("ic0", "time", |caller: In<'_>| caller.data().nanos)?;
    linker.func_wrap("ic0", "global_timer_set", |mut caller: In<'_>, at: u64| {
        std::mem::replace(&mut caller.data_mut().timer, at)
    })?;
    linker.func_wrap("ic0", "performance_counter", |caller: In<'_>, _: u32| {
        caller.data().given - caller.get_fuel().unwrap_or(0)
    })?;
    linker.func_wrap(
        "ic0",
        "is_controller",
        |mut caller: In<'_>, from: u32, len: u32| -> Result<u32, Error> {
            let who = read(&mut caller, from, len)?;
            let controllers = &caller.data().controllers;
            Ok(u32::from(controllers.iter().any(|one| one.as_slice() == who)))
        },
    )?;
    linker.func_wrap(
        "ic0",
        "debug_print",
        |mut caller: In<'_>, from: u32, len: u32| -> Result<(), Error> {
            let line = text(&read(&mut caller, from, len)?);
            caller.data_mut().printed.push(line);
            Ok(())
        },
    )?;
    linker.func_wrap(
        "ic0",
        "trap",
        |mut caller: In<'_>, from: u32, len: u32| -> Result<(), Error> {
            Err(trap(text(&read(&mut caller, from, len)?)))
        },
    )?;
    Ok(())
}
