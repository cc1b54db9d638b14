//! Reads the cards in a helper process (`plimsoll look`), which loads the GPU driver's libraries instead of
//! the daemon.
//!
//! Each request is a line on the helper's stdin, each reply one line of JSON on its stdout.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::sources::CardSources;

/// The hidden verb that answers.
const VERB: &str = "look";

/// A killed process is gone within milliseconds; half a second is waited.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CardQuery {
    Machine,
    Reading,
    /// The same, and nothing of it older than the question.
    Fresh,
}

/// Answers requests until the input ends; this is the work of `plimsoll look`.
pub fn answer_questions(questions: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    let sources = CardSources::open();
    for line in questions.lines() {
        let answer = match serde_json::from_str(&line?)? {
            CardQuery::Machine => serde_json::to_string(&sources.machine())?,
            CardQuery::Reading => serde_json::to_string(&sources.reading())?,
            CardQuery::Fresh => {
                sources.forget();
                serde_json::to_string(&sources.reading())?
            }
        };
        writeln!(answers, "{answer}")?;
        // The other side waits for this line, so it must not stay in a buffer.
        answers.flush()?;
    }
    Ok(())
}

/// Client of the helper process.
#[derive(Debug)]
pub(super) struct CardReader {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl CardReader {
    pub(super) fn start(plimsoll: &OsStr) -> io::Result<Self> {
        let mut child = Command::new(plimsoll)
            .arg0("plimsoll")
            .arg(VERB)
            // Ctrl-C on the terminal is the daemon's to handle.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (questions, answers) = (child.stdin.take(), child.stdout.take());
        let answers = BufReader::new(answers.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(Self { child, questions, answers })
    }

    /// Asks, and waits for the answer for `limit` at most. After an error the process is of no use any more.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, question: CardQuery, limit: Duration) -> io::Result<T> {
        let questions = self.questions.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(questions, "{}", serde_json::to_string(&question)?)?;
        // A call into a sick driver may never return. Dropping this kills the process, and the next question
        // starts another one, which finds the driver as it then is.
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut answer = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        if self.answers.buffer().is_empty() && poll(&mut answer, Some(&limit))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(serde_json::from_str(&line)?),
        }
    }
}

/// The process ends with its stdin and is reaped, unless it is stuck in the driver, where not even SIGKILL
/// reaches it.
impl Drop for CardReader {
    fn drop(&mut self) {
        // Closed before the kill: a process between two questions ends by itself at the end of its stdin.
        drop(self.questions.take());
        let _ = self.child.kill();
        for _ in 0..LOOKS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::mutants;
    use rustix::process::{Pid, getpgid};

    use super::*;
    use crate::{Machine, Reading};

    #[test]
    fn million_answers_of_the_driver_helper() {
        let seeds: [&[u8]; 2] = [
            br#"{"free":[["GPU-aaaa",4294967296]],"holders":[{"card":"GPU-aaaa","pid":7,"used":null,"name":"x"}]}"#,
            br#"{"cards":[{"id":"GPU-aaaa","name":"H200","kind":"gpu","total":25769803776,"free":1}],"holders":[],"problems":[]}"#,
        ];
        mutants(&seeds, &[b"null", b"[]", b"{}", b"\"used\":"], |mutant| {
            let _ = serde_json::from_slice::<Reading>(mutant);
            let _ = serde_json::from_slice::<Machine>(mutant);
        });
    }

    #[test]
    fn every_question_gets_one_line_that_reads_back() {
        let mut answers = Vec::new();
        answer_questions(&b"\"machine\"\n\"reading\"\n"[..], &mut answers).unwrap();
        let text = String::from_utf8(answers).unwrap();
        let mut lines = text.lines();
        let machine: Machine = serde_json::from_str(lines.next().unwrap()).unwrap();
        let reading: Reading = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert!(machine.host.is_some() && !reading.free.is_empty());
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn a_process_that_is_no_lookout_is_an_error_and_not_a_hang() {
        let mut lookout = CardReader::start(OsStr::new("/bin/true")).unwrap();
        assert!(lookout.ask::<Machine>(CardQuery::Machine, Duration::from_secs(10)).is_err());
    }

    #[test]
    fn a_driver_that_never_answers_costs_a_limited_time_and_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let silent = folder.path().join("silent");
        std::fs::write(&silent, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        std::fs::set_permissions(&silent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut lookout = CardReader::start(silent.as_os_str()).unwrap();
        let requested = lookout.ask::<Reading>(CardQuery::Reading, Duration::from_millis(200));
        assert_eq!(requested.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let pid = lookout.child.id();
        drop(lookout);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn card_reader_runs_in_its_own_process_group() {
        let lookout = CardReader::start(OsStr::new("/bin/true")).unwrap();
        let pid = Pid::from_child(&lookout.child);
        assert_eq!(getpgid(Some(pid)).unwrap(), pid);
    }
}
