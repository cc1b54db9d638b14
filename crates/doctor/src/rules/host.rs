//! Recognises shortage of host memory: killed processes, shared memory, limits of a single allocation.

use super::EvidenceWeight::{Decisive, Fair, Strong};
use super::RuleFinding;
use crate::cause::{Cause, SubCause};
use crate::facts::{Facts, MemoryPlace, NO_SIZE, Purpose, Quote};
use crate::pattern::Pattern;

rules! {
    host_killed: "mm/oom_kill.c";
    killed_without_a_word: "a shell prints `Killed` after SIGKILL, which the kernel sends when memory runs \
        out";
    host_refused: "ggml-backend.cpp (CPU buffers) and C++ (std::bad_alloc) print these messages";
    allocation_limit: "ggml-vulkan.cpp checks maxMemoryAllocationSize and maxBufferSize";
    override_of_buffers: "llama-model.cpp stops if a buffer type cannot hold its tensors";
}

/// Words of the kernel (`mm/oom_kill.c`), of Docker and of Kubernetes.
const FORMS: [&str; 6] =
    ["killed process ", "kill process ", "oom-kill:", "oom-killer", "oom_reaper:", "oomkilled"];

fn host_killed(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::KernelKill)?;
    // A refusal in the log is closer to the cause than the kill that followed it.
    if facts.says(Pattern::KernelMemory) || !facts.refusals.is_empty() {
        return None;
    }
    // A status of 137 or -9 says SIGKILL, and not who sent it.
    let lower = line.text.to_ascii_lowercase();
    let is_reported = ["oom", "out of memory", "killed process"].iter().any(|words| lower.contains(words));
    let is_of_oomd = lower.contains("due to memory ");
    // The line that names the process says more than the one that names who asked for memory.
    let named = facts.seen(Pattern::ProcessKilled).map(|seen| seen.last.clone());
    // In capitals: `task_memcg` stands in the line of any kill.
    let of_group = |line: &Quote| line.text.contains("emory cgroup") || line.text.contains("MEMCG");
    let (text, sub_cause) = if !is_reported && !is_of_oomd {
        (KILLED.to_owned(), SubCause::Killed)
    } else if of_group(&line) || named.as_ref().is_some_and(of_group) {
        let text = "its control group (a container or a service) had reached its limit";
        (killed_by_kernel(facts, text), SubCause::GroupLimit)
    } else if is_of_oomd {
        let text = "systemd-oomd killed the processes of a unit because host memory was short";
        (text.to_owned(), SubCause::HostKilled)
    } else {
        (killed_by_kernel(facts, "host memory ran out"), SubCause::HostKilled)
    };
    // On a unified board GPU memory is host memory, so the kill may be for the model.
    let (cause, weight) = if facts.is_unified() {
        (Cause::ModelTooLarge, Fair)
    } else {
        (Cause::NotOom, if sub_cause == SubCause::Killed { Strong } else { Decisive })
    };
    let quotes = named.into_iter().chain([line]);
    // A person's report of a kill is weaker than the kernel's, Docker's or systemd's line.
    let is_logged = is_of_oomd || FORMS.iter().any(|form| lower.contains(form));
    let is_shown = is_logged && sub_cause != SubCause::Killed;
    Some(RuleFinding::new(cause, weight, text, quotes).by(sub_cause).proven_if(is_shown))
}

/// `Out of memory: Killed process 4242 (llama-server) total-vm:…`: `mm/oom_kill.c:__oom_kill_process`.
fn killed_by_kernel(facts: &Facts, why: &str) -> String {
    let name = facts.seen(Pattern::ProcessKilled).and_then(|seen| {
        let at = seen.last.text.to_ascii_lowercase().find("killed process ")?;
        let (name, _) = seen.last.text[at..].split_once('(')?.1.split_once(')')?;
        Some(name)
    });
    format!("the kernel killed {} because {why}", name.unwrap_or("a process"))
}

const KILLED: &str = "the process printed no error before it was killed: the kernel killed it because host \
    memory ran out, or a user killed it";

fn killed_without_a_word(facts: &Facts) -> Option<RuleFinding> {
    // A shell prints `Killed` and the kernel `SIGKILL`; in small letters it is a word of a sentence.
    let line = facts
        .quote(Pattern::Killed)
        .filter(|line| line.text.contains("Killed") || line.text.contains("SIGKILL"))?;
    let explained = facts.says_any(&[Pattern::KernelKill, Pattern::NodeKilled]) || facts.ran_out();
    if explained || is_by_hand(&line) {
        return None;
    }
    // systemd says so before it kills a unit that did not end in time.
    if line.text.contains("with signal SIGKILL") {
        let text = "systemd killed the process, which did not end in time";
        return Some(RuleFinding::new(Cause::NotOom, Fair, text, [line]));
    }
    Some(if facts.is_unified() {
        RuleFinding::new(Cause::ModelTooLarge, Fair, KILLED, [line])
    } else {
        RuleFinding::new(Cause::NotOom, Fair, KILLED, [line]).by(SubCause::Killed)
    })
}

/// The line shows another signal, or the command that sent it.
fn is_by_hand(line: &Quote) -> bool {
    let text = line.text.to_ascii_lowercase();
    ["sigterm", "signal 15", "pkill", "kill -"].iter().any(|words| text.contains(words))
}

fn host_refused(facts: &Facts) -> Option<RuleFinding> {
    let refusal = facts.refusal().filter(|refusal| refusal.place == MemoryPlace::Host)?;
    // These follow a refusal of the card in the words of its caller.
    let named = matches!(refusal.purpose, Purpose::Cache | Purpose::Compute | Purpose::Pool);
    if named || facts.says(Pattern::PinCall) {
        return None;
    }
    let lower = refusal.quote.text.to_ascii_lowercase();
    let (text, sub_cause) = if lower.contains("1455") || lower.contains("paging file") {
        ("Windows had no page file left to back the memory", SubCause::CommitLimit)
    } else {
        ("a buffer in host memory was refused; the card is not involved", SubCause::HostMemory)
    };
    // Without a size, the request may have been an overflow.
    let is_shown = refusal.requested.is_some() || sub_cause == SubCause::CommitLimit;
    let weight = if is_shown { Strong } else { Fair };
    Some(RuleFinding::new(Cause::Other, weight, text, [refusal.quote.clone()]).by(sub_cause))
}

fn allocation_limit(facts: &Facts) -> Option<RuleFinding> {
    // Vulkan prints the same limit for pinned memory, which is optional.
    let line = facts.quote(Pattern::AllocationLimit).filter(|line| !line.text.contains("pinned memory"))?;
    let is_size =
        facts.refusal().and_then(|refusal| refusal.requested).is_none_or(|requested| requested < NO_SIZE);
    let text = "one allocation is larger than the driver allows, no matter how much is free";
    is_size.then(|| RuleFinding::new(Cause::Other, Decisive, text, [line]).by(SubCause::AllocationLimit))
}

/// No device refused memory and no size is printed: the buffer could not be made at all.
fn override_of_buffers(facts: &Facts) -> Option<RuleFinding> {
    let line = facts.quote(Pattern::UnsizedRefused).filter(|_| facts.refusals.is_empty())?;
    let overridden = facts.quote(Pattern::Override);
    let weight = if overridden.is_some() { Decisive } else { Fair };
    let text =
        "a buffer could not be created, although no device refused memory; check the tensor overrides (-ot)";
    let quotes = [Some(line), overridden].into_iter().flatten();
    Some(RuleFinding::new(Cause::Other, weight, text, quotes).by(SubCause::Override))
}
