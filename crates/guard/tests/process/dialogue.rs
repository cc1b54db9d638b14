//! Controls a test program that stops until it is told to continue, so that a test can send it requests in
//! between.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use plimsoll_wire::page::{CardSnapshot, Page, PageSnapshot};

use crate::runner::client::pages;

pub(crate) struct Dialogue {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    /// Where its page is.
    folder: PathBuf,
}

impl Dialogue {
    /// Starts the program, whose page comes to lie in `folder`.
    pub(crate) fn start(command: &mut Command, folder: &Path) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            folder: folder.to_owned(),
        }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and leaves it the zombie that it then is.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        let mut end = std::mem::MaybeUninit::uninit();
        // SAFETY: a child of ours that nobody has waited for, and a place of ours.
        let ended = unsafe {
            libc::waitid(libc::P_PID, self.child.id(), end.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(ended, 0);
    }

    /// Reads on to the line that begins with this word, and returns the rest of it.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        loop {
            let line = self.lines.next().expect("the program says more").unwrap();
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn go_on(&mut self) {
        writeln!(self.input).unwrap();
    }

    /// Asks for what is idle on the first card.
    pub(crate) fn ask(&self, number: u32) {
        let path = self.folder.join(format!("{}.page", self.child.id()));
        let at = u64::try_from(Page::ask_offset(0).unwrap()).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&number.to_ne_bytes(), at).unwrap();
    }

    pub(crate) fn page(&self) -> PageSnapshot {
        pages(&self.folder).into_iter().next().expect("it has a page")
    }

    pub(crate) fn card(&self) -> CardSnapshot {
        self.page().cards()[0]
    }

    /// Lets it go on to its end.
    pub(crate) fn end(mut self) -> ExitStatus {
        drop(self.input);
        self.lines.for_each(drop);
        self.child.wait().unwrap()
    }
}
