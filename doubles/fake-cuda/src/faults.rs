//! Injected faults of the fake CUDA driver: calls that fail because the test requests it.
//!
//! `fail=3` refuses the third allocation of device memory of the process. `fail=cuMemMap:2:999` returns that
//! code for the second call of that function, before it does anything; `fail=cuMemMap:*:801` does so for all
//! its calls. `fail=cuMemMap:2:kill` ends the process there, as SIGKILL does at any moment.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Mutex;

use crate::code::{Code, OUT_OF_MEMORY};
use crate::settings::settings;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The function, or [`ALLOCATION`].
    act: String,
    /// Which of its calls; all of them without a number.
    turn: Option<u64>,
    consequence: Consequence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consequence {
    Code(Code),
    /// The process dies by SIGKILL.
    Death,
}

/// What allocations of device memory are counted under, whoever asks for them.
pub(crate) const ALLOCATION: &str = "allocation";

impl FromStr for Fault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':');
        let parts = [parts.next(), parts.next(), parts.next()];
        let (act, turn, consequence) = match parts {
            [Some(turn), None, _] => (ALLOCATION, turn, Consequence::Code(OUT_OF_MEMORY)),
            [Some(act), Some(turn), Some("kill")] => (act, turn, Consequence::Death),
            [Some(act), Some(turn), code] => {
                let code = code.map_or(Ok(OUT_OF_MEMORY.0), str::parse).map_err(drop)?;
                (act, turn, Consequence::Code(Code(code)))
            }
            _ => return Err(()),
        };
        let turn = match turn {
            "*" => None,
            number => Some(number.parse().map_err(drop)?),
        };
        Ok(Self { act: act.to_owned(), turn, consequence })
    }
}

/// Counts one more `act`, and says how it has to fail.
pub(crate) fn strike(act: &'static str) -> Result<(), Code> {
    static TURNS: Mutex<BTreeMap<&str, u64>> = Mutex::new(BTreeMap::new());
    let faults = &settings().faults;
    if !faults.iter().any(|fault| fault.act == act) {
        return Ok(());
    }
    let turn = {
        let mut turns = TURNS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let turn = turns.entry(act).or_default();
        *turn += 1;
        *turn
    };
    let struck = |fault: &&Fault| fault.act == act && fault.turn.is_none_or(|number| number == turn);
    match faults.iter().find(struck).map(|fault| fault.consequence) {
        None => Ok(()),
        Some(Consequence::Code(code)) => Err(code),
        Some(Consequence::Death) => {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_numbers_of_allocations_or_of_calls() {
        let fault = |act: &str, turn, code| {
            Ok(Fault { act: act.to_owned(), turn, consequence: Consequence::Code(Code(code)) })
        };
        assert_eq!("3".parse(), fault("allocation", Some(3), 2));
        assert_eq!("cuMemMap:2:999".parse(), fault("cuMemMap", Some(2), 999));
        assert_eq!("cuMemMap:*".parse(), fault("cuMemMap", None, 2));
        assert_eq!("cuMemMap:x".parse::<Fault>(), Err(()));
        let death = Fault { act: "cuMemMap".to_owned(), turn: Some(3), consequence: Consequence::Death };
        assert_eq!("cuMemMap:3:kill".parse(), Ok(death));
    }
}
