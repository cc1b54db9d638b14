//! Tests of logs of killed processes, by sender of the kill: the kernel, a control group's limit, or one that
//! the log does not name.

use plimsoll_doctor::{Cause, Diagnosis, LineSource, LogReader, SubCause, diagnose};

fn judged(log: &str) -> Diagnosis {
    let mut reader = LogReader::new();
    reader.feed(LineSource::Log, log.as_bytes());
    diagnose(&reader.finish())
}

#[test]
fn a_status_of_137_is_of_the_host_and_unsure() {
    for log in [
        "llm-1  | load_tensors: loading model tensors, this can take a while... (mmap = true)\nllm-1 exited with code 137\n",
        "whisper  | ./entrypoint.sh: line 12:     7 Killed                  /app/bin/server $ARGS \"$@\"\nwhisper exited with code 137\n",
        "    Last State:     Terminated\n      Exit Code:    137\n",
        "launcher: subprocess exits with return code = -9\n",
        "load_tensors: loading model tensors, this can take a while... (mmap = false)\nKilled\n",
    ] {
        let stated = judged(log);
        assert_eq!(
            (stated.cause, stated.sub_cause),
            (Cause::HostOom, Some(SubCause::Killed)),
            "{log}\n{}",
            stated.reason
        );
        assert!(stated.confidence <= 0.7, "who killed it is not told: {}", stated.reason);
    }
}

#[test]
fn a_kill_that_the_kernel_or_the_container_reports_is_sure() {
    for (log, sub_cause) in [
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/docker/7c,task=python3,pid=4411\nMemory cgroup out of memory: Killed process 4411 (python3) total-vm:30000000kB\n",
            SubCause::GroupLimit,
        ),
        (
            "Out of memory: Killed process 4711 (llama-server) total-vm:9000000kB, anon-rss:7000000kB\n",
            SubCause::HostKilled,
        ),
        (
            "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
            SubCause::HostKilled,
        ),
        (
            "systemd-oomd[611]: Killed /user.slice/app.scope due to memory pressure for /user.slice being 81.2% > 50.0% for > 20s with reclaim activity\n",
            SubCause::HostKilled,
        ),
    ] {
        let stated = judged(log);
        assert_eq!(
            (stated.cause, stated.sub_cause),
            (Cause::HostOom, Some(sub_cause)),
            "{log}\n{}",
            stated.reason
        );
        assert!(stated.confidence >= 0.8, "{}", stated.reason);
    }
}

#[test]
fn an_end_that_was_asked_for_is_none_of_the_host() {
    for log in [
        "llama.service: State 'stop-sigterm' timed out. Killing.\nllama.service: Killing process 4242 (llama-server) with signal SIGKILL.\n",
        "received SIGTERM\nKilled by SIGTERM\n",
        "$ pkill -9 llama-server\nKilled: pkill\n",
    ] {
        assert_ne!(judged(log).cause, Cause::HostOom, "{log}\n{}", judged(log).reason);
    }
}
