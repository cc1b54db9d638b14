//! Closed-loop load generator: a fixed number of connections on one thread, each with one request in flight.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;

use crate::client::{Inbox, Reply};

/// A crowd that fails this often has nothing left to measure.
const MOST_FAILURES: u64 = 100;
/// No crowd works longer than this, however slowly its replies come in.
const LONGEST: Duration = Duration::from_secs(60);
/// A crowd that hears nothing for this long gives up.
const SILENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) request: &'a [u8],
    pub(crate) connections: usize,
    pub(crate) until: Until,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// No new request after this time; those out are waited for.
    Time(Duration),
    /// This many requests a connection.
    Requests(u64),
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) wall: Duration,
    pub(crate) latencies: Vec<Duration>,
    pub(crate) events: u64,
    /// Connections that broke, and replies other than 200.
    pub(crate) failures: u64,
}

struct Member {
    socket: TcpStream,
    inbox: Inbox,
    /// When the request that is out was sent.
    requested: Option<Instant>,
    sent: u64,
}

struct Crowd<'a> {
    load: Load<'a>,
    epoll: OwnedFd,
    members: Vec<Member>,
    started: Instant,
    busy: usize,
    outcome: Outcome,
}

pub(crate) fn run(load: Load<'_>) -> io::Result<Outcome> {
    let mut crowd = Crowd::gather(load)?;
    for number in 0..crowd.members.len() {
        crowd.send(number);
    }
    let mut events = Vec::with_capacity(load.connections);
    while crowd.busy > 0 && crowd.outcome.failures < MOST_FAILURES {
        events.clear();
        let heard = epoll::wait(&crowd.epoll, spare_capacity(&mut events), Some(&SILENCE))?;
        if heard == 0 || crowd.started.elapsed() > LONGEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for event in &events {
            crowd.hear(usize::try_from(event.data.u64()).unwrap_or(usize::MAX))?;
        }
    }
    crowd.outcome.wall = crowd.started.elapsed();
    Ok(crowd.outcome)
}

impl<'a> Crowd<'a> {
    fn gather(load: Load<'a>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut crowd = Self {
            load,
            epoll,
            members: Vec::with_capacity(load.connections),
            started: Instant::now(),
            busy: 0,
            outcome: Outcome::default(),
        };
        for number in 0..load.connections {
            let socket = crowd.join(number)?;
            crowd.members.push(Member { socket, inbox: Inbox::default(), requested: None, sent: 0 });
        }
        crowd.started = Instant::now();
        Ok(crowd)
    }

    fn join(&self, number: usize) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(self.load.address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        epoll::add(&self.epoll, &socket, EventData::new_u64(number), EventFlags::IN)?;
        Ok(socket)
    }

    fn has_more(&self, number: usize) -> bool {
        match self.load.until {
            Until::Time(time) => self.started.elapsed() < time,
            Until::Requests(count) => self.members[number].sent < count,
        }
    }

    /// Sends the member's next request, if it has one.
    fn send(&mut self, number: usize) {
        if !self.has_more(number) {
            return;
        }
        let member = &mut self.members[number];
        member.sent += 1;
        member.requested = Some(Instant::now());
        self.busy += 1;
        // The socket's buffer is empty and larger than any request of a crowd. A connection that is already
        // broken shows at the next read.
        member.socket.write_all(self.load.request).ok();
    }

    fn hear(&mut self, number: usize) -> io::Result<()> {
        let member = &mut self.members[number];
        match member.inbox.read(&mut member.socket) {
            Ok(None) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Ok(Some(reply)) => {
                self.note(number, reply);
                self.send(number);
                Ok(())
            }
            Err(_) => self.replace(number),
        }
    }

    fn note(&mut self, number: usize, reply: Reply) {
        let Some(requested) = self.members[number].requested.take() else {
            return;
        };
        self.busy -= 1;
        self.outcome.events += reply.events();
        if reply.status == 200 {
            self.outcome.latencies.push(requested.elapsed());
        } else {
            self.outcome.failures += 1;
        }
    }

    /// A connection broke: a failure if it owed a reply, and replaced if there is more to send.
    fn replace(&mut self, number: usize) -> io::Result<()> {
        epoll::delete(&self.epoll, &self.members[number].socket)?;
        if self.members[number].requested.take().is_some() {
            self.busy -= 1;
            self.outcome.failures += 1;
        }
        if self.has_more(number) {
            let socket = self.join(number)?;
            let member = &mut self.members[number];
            (member.socket, member.inbox) = (socket, Inbox::default());
            self.send(number);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// Answers every request; hangs up after `replies` of them on a connection.
    fn server(replies: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                thread::spawn(move || {
                    let mut request = [0; REQUEST.len()];
                    for _ in 0..replies {
                        socket.read_exact(&mut request)?;
                        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
                    }
                    socket.read_exact(&mut request)
                });
            }
        });
        address
    }

    #[test]
    fn every_request_of_every_connection_is_answered() {
        let until = Until::Requests(5);
        let load = Load { address: server(usize::MAX), request: REQUEST, connections: 4, until };
        let outcome = run(load).unwrap();
        assert_eq!((outcome.latencies.len(), outcome.failures), (20, 0));
    }

    #[test]
    fn a_broken_connection_is_one_failure_and_is_replaced() {
        let load = Load { address: server(3), request: REQUEST, connections: 1, until: Until::Requests(8) };
        let outcome = run(load).unwrap();
        assert_eq!((outcome.latencies.len(), outcome.failures), (6, 2));
    }
}
