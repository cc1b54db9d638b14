//! Describes one run of the fake engine: the duration and size of each step, and the one fault to commit.
//!
//! The script consists of `key=value` words, separated by blanks, from `PLIMSOLL_FAKE_ENGINE` and then from
//! `--fake`; a later word overrides an earlier one. Names of durations end in `_ms`. There is at most one
//! fault; with `fail_once=FILE` only one process commits it.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::Signal;

use super::budget::Budget;
use super::hoard::Hoard;

#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Time between the bind and ready.
    pub(crate) load: Duration,
    /// Time between a request and the first byte of its answer.
    pub(crate) delay: Duration,
    /// Content events of a streamed answer.
    pub(crate) events: u64,
    pub(crate) event_gap: Duration,
    /// Length of the content of one event, and of a whole answer.
    pub(crate) event_bytes: usize,
    pub(crate) answer_bytes: usize,
    pub(crate) fail: Option<Fault>,
    fail_once: Option<PathBuf>,
    /// What follows the words of ggml's abort.
    pub(crate) abort: Abort,
    /// Extra time between the request to stop and the exit.
    pub(crate) drain: Duration,
    /// Nothing but SIGKILL ends the process.
    pub(crate) ignore_term: bool,
    /// The router channel of b8799: one word for ready, none for loading, and no end before stdin has been
    /// read.
    pub(crate) early_channel: bool,
    /// SIGKILL to itself, this long after ready.
    pub(crate) die_after: Option<Duration>,
    /// Requests that one connection may carry, and the silence after which it is closed: by default the 100
    /// and the 5 s of cpp-httplib in llama-server. Zero is no limit.
    pub(crate) keep_alive_max: u64,
    pub(crate) idle_close: Duration,
    /// Requests that it works on at once; zero is no limit.
    pub(crate) slots: usize,
    /// Time to compute a token of a prompt that is not cached; zero has no cache.
    pub(crate) prompt: Duration,
    /// Time to save the slot, and bytes of its file for each token.
    pub(crate) save: Duration,
    pub(crate) slot_bytes: u64,
    pub(crate) budget: Budget,
    pub(crate) hoard: Hoard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    CrashAtLoad,
    SignalAtLoad(Signal),
    HangAtLoad,
    OomAtLoad,
    /// A request deeper than this many tokens (four bytes each) ends in the abort of ggml's CUDA error.
    OomAtDepth(u64),
    /// Dies after this many content events, or in the middle of the next one.
    CrashMidStream {
        events: u64,
        torn: bool,
    },
    HangMidRequest,
    /// After so many answers, each request is answered with an error, or its connection is closed; `/health`
    /// is well.
    Poisoned {
        after: u64,
        drops: bool,
    },
    /// After so many answers, each request is taken and never answered; `/health` is well.
    Silent {
        after: u64,
    },
    /// A request deeper than this many tokens ends in a signal.
    CrashAtDepth(u64),
    /// Answers each request deeper than this many tokens with an error, before it has a slot, and serves all
    /// others.
    ErrorAtDepth(u64),
    /// Closes the connection of each request deeper than this many tokens, and serves all others.
    DropAtDepth(u64),
    PortTaken,
}

/// `ggml_abort` starts a debugger, waits for it, and then ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abort {
    Ends,
    /// The debugger never returns, and holds all threads.
    Hangs,
    /// It never returns, and holds the thread that computes: `/health` is well.
    HangsLoop,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ScriptError {
    #[error("{0:?} is not key=value")]
    NotAPair(String),
    #[error("unknown key {0:?} in the script of the fake engine")]
    UnknownKey(String),
    #[error("{key}: cannot read {value:?}")]
    BadValue { key: String, value: String },
}

impl Default for Script {
    fn default() -> Self {
        Self {
            load: Duration::ZERO,
            delay: Duration::ZERO,
            events: 8,
            event_gap: Duration::ZERO,
            event_bytes: 8,
            answer_bytes: 32,
            fail: None,
            fail_once: None,
            abort: Abort::Ends,
            drain: Duration::ZERO,
            ignore_term: false,
            early_channel: false,
            die_after: None,
            keep_alive_max: 100,
            idle_close: Duration::from_secs(5),
            slots: 0,
            prompt: Duration::ZERO,
            save: Duration::ZERO,
            slot_bytes: 16,
            budget: Budget::default(),
            hoard: Hoard::default(),
        }
    }
}

impl Script {
    pub(crate) fn read(&mut self, words: &str) -> Result<(), ScriptError> {
        words.split_whitespace().try_for_each(|word| match word.split_once('=') {
            Some((key, value)) => self.set(key, value),
            None => Err(ScriptError::NotAPair(word.to_owned())),
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ScriptError> {
        let bad = || ScriptError::BadValue { key: key.to_owned(), value: value.to_owned() };
        let millis = || value.parse().map(Duration::from_millis).map_err(|_| bad());
        match key {
            "load_ms" => self.load = millis()?,
            "delay_ms" => self.delay = millis()?,
            "events" => self.events = parse(value).ok_or_else(bad)?,
            "event_ms" => self.event_gap = millis()?,
            "event_bytes" => self.event_bytes = parse(value).ok_or_else(bad)?,
            "answer_bytes" => self.answer_bytes = parse(value).ok_or_else(bad)?,
            "fail" => self.fail = Some(Fault::read(value).ok_or_else(bad)?),
            "fail_once" => self.fail_once = Some(PathBuf::from(value)),
            "abort" => self.abort = Abort::read(value).ok_or_else(bad)?,
            "drain_ms" => self.drain = millis()?,
            "ignore_term" => self.ignore_term = value == "1",
            "early_channel" => self.early_channel = value == "1",
            "die_after_ms" => self.die_after = Some(millis()?),
            "keep_alive_max" => self.keep_alive_max = parse(value).ok_or_else(bad)?,
            "idle_close_ms" => self.idle_close = millis()?,
            "file" => self.budget.file = Some(PathBuf::from(value)),
            "vram" => self.budget.base_bytes = parse(value).ok_or_else(bad)?,
            "vram_per_token" => self.budget.bytes_per_token = parse(value).ok_or_else(bad)?,
            "slots" => self.slots = parse(value).ok_or_else(bad)?,
            "prompt_us" => self.prompt = millis()? / 1000,
            "save_ms" => self.save = millis()?,
            "slot_bytes" => self.slot_bytes = parse(value).ok_or_else(bad)?,
            "shared_pool" => self.budget.shared = value == "1",
            "vram_total" => self.budget.total_bytes = parse(value).ok_or_else(bad)?,
            "leak" => self.hoard.leak = parse(value).ok_or_else(bad)?,
            "once_at" => self.hoard.once_at = parse(value).ok_or_else(bad)?,
            "once" => self.hoard.once = parse(value).ok_or_else(bad)?,
            "cuda" => self.budget.cuda = value == "1",
            "return_ms" => self.budget.comes_back = millis()?,
            _ => return Err(ScriptError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }

    /// True when the fault may happen now. With `fail_once` only the process that creates the file may fail,
    /// however many ask at once.
    pub(crate) fn strikes(&self) -> bool {
        self.fail_once.as_ref().is_none_or(|marker| File::create_new(marker).is_ok())
    }
}

impl Fault {
    pub(crate) fn is_at_load(self) -> bool {
        matches!(self, Self::CrashAtLoad | Self::SignalAtLoad(_) | Self::HangAtLoad | Self::OomAtLoad)
    }

    /// Reads `NAME`, `NAME:VALUE` or `NAME:VALUE:VALUE`; `=` may stand for the colon.
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split([':', '=']);
        let name = parts.next()?;
        let mut rest = [parts.next(), parts.next()].into_iter();
        let mut value = || rest.next().flatten();
        Some(match name {
            "crash_at_load" => Self::CrashAtLoad,
            "signal_at_load" => Self::SignalAtLoad(signal(value().unwrap_or("SEGV"))?),
            "hang_at_load" => Self::HangAtLoad,
            "oom_at_load" => Self::OomAtLoad,
            "oom_at_depth" => Self::OomAtDepth(parse(value()?)?),
            "crash_mid_stream" => {
                Self::CrashMidStream { events: parse(value()?)?, torn: value() == Some("torn") }
            }
            "drop_at_depth" => Self::DropAtDepth(parse(value()?)?),
            "error_at_depth" => Self::ErrorAtDepth(parse(value()?)?),
            "poisoned" => Self::Poisoned { after: parse(value()?)?, drops: value() == Some("drops") },
            "silent" => Self::Silent { after: parse(value()?)? },
            "crash_at_depth" => Self::CrashAtDepth(parse(value()?)?),
            "hang_mid_request" => Self::HangMidRequest,
            "port_taken" => Self::PortTaken,
            _ => return None,
        })
    }
}

impl Abort {
    fn read(text: &str) -> Option<Self> {
        match text {
            "ends" => Some(Self::Ends),
            "hangs" => Some(Self::Hangs),
            "hangs_loop" => Some(Self::HangsLoop),
            _ => None,
        }
    }
}

fn signal(name: &str) -> Option<Signal> {
    match name.trim_start_matches("SIG") {
        "SEGV" => Some(Signal::SEGV),
        "KILL" => Some(Signal::KILL),
        "ABRT" => Some(Signal::ABORT),
        "BUS" => Some(Signal::BUS),
        _ => None,
    }
}

fn parse<N: FromStr>(value: &str) -> Option<N> {
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(words: &str) -> Result<Script, ScriptError> {
        let mut script = Script::default();
        script.read(words).map(|()| script)
    }

    #[test]
    fn a_later_word_wins() {
        let script = script("events=3 load_ms=40  events=5").unwrap();
        assert_eq!((script.events, script.load), (5, Duration::from_millis(40)));
    }

    #[test]
    fn faults_carry_their_operands() {
        assert_eq!(script("fail=oom_at_depth=9").unwrap().fail, Some(Fault::OomAtDepth(9)));
        assert_eq!(script("fail=signal_at_load:KILL").unwrap().fail, Some(Fault::SignalAtLoad(Signal::KILL)));
        assert_eq!(
            script("fail=poisoned:2:drops").unwrap().fail,
            Some(Fault::Poisoned { after: 2, drops: true })
        );
        let torn = Fault::CrashMidStream { events: 2, torn: true };
        assert_eq!(script("fail=crash_mid_stream:2:torn").unwrap().fail, Some(torn));
    }

    #[test]
    fn a_misspelt_word_is_refused_rather_than_ignored() {
        assert_eq!(script("laod_ms=4").unwrap_err(), ScriptError::UnknownKey("laod_ms".to_owned()));
        assert_eq!(script("events").unwrap_err(), ScriptError::NotAPair("events".to_owned()));
        assert_eq!(script("fail=sulk").unwrap_err().to_string(), "fail: cannot read \"sulk\"");
    }

    #[test]
    fn a_fault_with_a_marker_strikes_once() {
        let folder = tempfile::tempdir().unwrap();
        let script = script(&format!("fail_once={}", folder.path().join("marker").display())).unwrap();
        assert_eq!([script.strikes(), script.strikes()], [true, false]);
    }
}
