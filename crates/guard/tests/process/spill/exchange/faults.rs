//! Tests of the exchange of KV cache and weights between card and host memory, when a driver fails or the
//! process dies at any step.

use std::collections::BTreeMap;
use std::thread;

use super::super::run::{MIB, Run};
use super::{arguments, is_right, options, run};

/// Conversations of a run, and its budget in MiB.
const CONVERSATIONS: u32 = 3;
const BUDGET: u64 = 120;
const ATTEMPTS: u32 = 5;
/// Functions that are called outside of exchanges too. Which call is an exchange's depends on how long
/// earlier ones took.
const SHARED: [&str; 4] = ["cuStreamSynchronize", "cuMemcpyDtoDAsync_v2", "cuCtxSynchronize", "cuMemUnmap"];

/// Calls of an exchange until its first pair is done: a wait, copies of four pairs and two waits for them,
/// two handles, and for each granule three calls to replace it and two to make its memory a spare.
const OF_FIRST_PAIR: usize = 1 + 8 + 2 + 2 + 6 + 4;
/// Faults of later calls.
const LATER: usize = 16;

/// A call of the driver: the function and which of its calls it is, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    function: String,
    turn: usize,
}

impl Call {
    fn fails(&self, how: &str) -> String {
        format!("{}:{}:{how}", self.function, self.turn)
    }
}

/// Guard's calls for exchanges, in order.
#[derive(Debug, Default)]
struct Calls {
    /// Those that prepare the exchange of a new cache.
    preparation: Vec<Call>,
    /// Those of the first exchange, and of all later ones.
    first: Vec<Call>,
    later: Vec<Call>,
}

impl Calls {
    fn of(log: &str) -> Self {
        let names = log.lines().filter_map(|line| line.split_once(" call ")?.1.split_once('('));
        let names: Vec<&str> = names.map(|(name, _)| name).collect();
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        let calls: Vec<Call> = names
            .iter()
            .map(|name| {
                let turn = turns.entry(name).or_default();
                *turn += 1;
                Call { function: (*name).to_owned(), turn: *turn }
            })
            .collect();
        let first = names.iter().position(|name| *name == "cuCtxSynchronize").expect("memory was exchanged");
        // The last addresses that are reserved are those of the frames. The program then fills its cache.
        let reserved = names[..first].iter().rposition(|name| *name == "cuMemAddressReserve").unwrap();
        let filled = names[reserved..].iter().position(|name| *name == "cuMemcpyHtoD_v2").unwrap();
        let mut found = Self { preparation: calls[reserved..reserved + filled].to_vec(), ..Self::default() };
        let mut at = 0;
        while let Some(wait) = names[at..].iter().position(|name| *name == "cuCtxSynchronize") {
            let start = at + wait;
            let length = names[start..].iter().position(|name| *name == "cuCtxPopCurrent_v2");
            let Some(length) = length else { break };
            let part = if at == 0 { &mut found.first } else { &mut found.later };
            part.extend_from_slice(&calls[start..=start + length]);
            at = start + length;
        }
        found
    }

    /// Calls that are the same in each run: those until the first pair is exchanged.
    fn certain(&self) -> impl Iterator<Item = &Call> {
        self.preparation.iter().chain(self.first.iter().take(OF_FIRST_PAIR))
    }

    /// Some of the others, of functions that nothing else uses. How many exchanges there are is a matter of
    /// time.
    fn later(&self) -> impl Iterator<Item = &Call> {
        let others = self.first.iter().skip(OF_FIRST_PAIR).chain(&self.later);
        let others: Vec<&Call> = others.filter(|call| !SHARED.contains(&call.function.as_str())).collect();
        let step = (others.len() / LATER).max(1);
        others.into_iter().step_by(step)
    }
}

fn calls() -> Calls {
    let whole = run("", &options(BUDGET), CONVERSATIONS, "");
    is_right(&whole);
    let calls = Calls::of(&whole.log);
    let functions: Vec<&str> = calls.certain().map(|call| call.function.as_str()).collect();
    for function in [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRetainAllocationHandle",
        "cuStreamCreate",
        "cuMemcpyDtoDAsync_v2",
        "cuStreamSynchronize",
        "cuCtxSynchronize",
    ] {
        assert!(functions.contains(&function), "no {function} in {functions:?}");
    }
    calls
}

/// Calls `act` with each item, two at a time.
fn each<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    let (one, other) = items.split_at(items.len() / 2);
    thread::scope(|scope| {
        for part in [one, other] {
            scope.spawn(|| part.iter().for_each(&act));
        }
    });
}

/// A run with a driver that fails so keeps every byte, breaks no rule and leaves nothing. False if the fault
/// was not met.
fn survives(fault: &str) -> bool {
    let ran = run(&format!("fail={fault}"), &options(BUDGET), CONVERSATIONS, "");
    assert_eq!(ran.lines, ["all right"], "{fault}: {}", ran.errors);
    assert_eq!(ran.violations(), [""; 0], "{fault}");
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0), "{fault}");
    ran.log.contains(") = 999")
}

/// The same for a fault that has to be met: on a busy machine an exchange may come too late for it, and is
/// tried again.
fn survives_once_met(fault: &str) {
    assert!((0..ATTEMPTS).any(|_| survives(fault)), "{fault} was not met");
}

#[test]
fn an_exchange_that_fails_at_any_call_of_the_driver_loses_no_byte() {
    let calls = calls();
    let certain: Vec<&Call> = calls.certain().collect();
    each(&certain, |call| survives_once_met(&call.fails("999")));
    each(&calls.later().collect::<Vec<_>>(), |call| {
        survives(&call.fails("999"));
    });
}

#[test]
fn a_driver_that_fails_again_when_things_are_put_right_loses_no_byte() {
    let calls = calls();
    // After the last pair, memory that cannot be unmapped stays.
    let may_fail_twice = ["cuMemMap", "cuMemSetAccess", "cuMemRetainAllocationHandle", "cuMemCreate"];
    let certain = calls.certain().filter(|call| may_fail_twice.contains(&call.function.as_str()));
    each(&certain.collect::<Vec<_>>(), |call| {
        let next = Call { turn: call.turn + 1, ..(*call).clone() };
        survives_once_met(&format!("{},{}", call.fails("999"), next.fails("999")));
    });
}

/// A process that is killed in this call keeps its budget, and so does the next one. False if the call was
/// not made.
fn is_killed_and_followed(call: &Call) -> bool {
    let options = options(BUDGET);
    let cards = tempfile::tempdir().unwrap();
    let fake = format!("total=4G shared={}", cards.path().join("cards").display());
    let deadly = format!("{fake} fail={}", call.fails("kill"));
    let run = Run::of("conversations.c", &deadly, &options);
    let words = arguments(CONVERSATIONS, "");
    let killed = run.run(&words);
    assert!(killed.card().peak <= BUDGET * MIB, "{call:?}");
    // The next process has the same budget, which the dead one held a part of.
    is_right(&run.on(&fake).run(&words));
    killed.code.is_none()
}

#[test]
fn a_process_that_is_killed_in_an_exchange_leaves_the_card_and_the_budget_to_the_next() {
    let calls = calls();
    let certain: Vec<&Call> = calls.certain().step_by(4).collect();
    each(&certain, |call| {
        assert!((0..ATTEMPTS).any(|_| is_killed_and_followed(call)), "{call:?} was not made");
    });
    each(&calls.later().step_by(3).collect::<Vec<_>>(), |call| {
        is_killed_and_followed(call);
    });
}
