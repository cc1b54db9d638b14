//! Fault tests of a fleet: killed or stopped processes, cut links, and a store (etcd) that is slow, full or
//! restored.

use std::net::TcpStream;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::links::Link;
use super::nemesis::{HOSTS, MODELS, World};
use crate::http;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillDaemon,
    StopDaemon,
    KillEngine,
    StopEngine,
    KillMember,
    StopMember,
    /// Two members of three are stopped.
    StopQuorum,
    CutHostFromStore,
    CutHostFromHosts,
    CutMemberFromMembers,
    SlowDisk,
    FullStore,
    RestoredBackup,
    /// An operator drains a host and ends the drain, and moves a model.
    Operator,
}

impl Fault {
    pub(crate) const ALL: [Self; 14] = [
        Self::KillDaemon,
        Self::StopDaemon,
        Self::KillEngine,
        Self::StopEngine,
        Self::KillMember,
        Self::StopMember,
        Self::StopQuorum,
        Self::CutHostFromStore,
        Self::CutHostFromHosts,
        Self::CutMemberFromMembers,
        Self::SlowDisk,
        Self::FullStore,
        Self::RestoredBackup,
        Self::Operator,
    ];

    /// Commits the fault and ends it.
    pub(crate) fn strike(self, world: &mut World, at: usize, most: u64) {
        match self {
            Self::KillDaemon => kill_daemon(world, at, most),
            Self::StopDaemon => {
                world.daemons[at].signal("STOP");
                world.pause(most);
                world.daemons[at].signal("CONT");
            }
            Self::KillEngine => drop(signal_engine(world, at, "KILL")),
            Self::StopEngine => {
                let engine = signal_engine(world, at, "STOP");
                world.pause(most);
                // It may have been ended meanwhile.
                engine.into_iter().for_each(|engine| signal(engine, "CONT"));
            }
            Self::KillMember => {
                world.store.members[at].kill();
                world.pause(most);
                world.store.members[at].restart();
            }
            Self::StopMember => {
                world.store.members[at].signal("STOP");
                world.pause(most);
                world.store.members[at].signal("CONT");
            }
            Self::StopQuorum => {
                let others: Vec<usize> = (0..HOSTS).filter(|other| *other != at).collect();
                others.iter().for_each(|other| world.store.members[*other].signal("STOP"));
                world.pause(most);
                others.iter().for_each(|other| world.store.members[*other].signal("CONT"));
            }
            Self::CutHostFromStore => cut(world, Link::HostStore(at), most),
            Self::CutHostFromHosts => cut(world, Link::HostHosts(at), most),
            Self::CutMemberFromMembers => cut(world, Link::MemberMembers(at), most),
            Self::SlowDisk => slow_disk(world, most),
            Self::FullStore => full_store(world, most),
            Self::RestoredBackup => restored_backup(world, most),
            Self::Operator => operate(world, at),
        }
    }
}

fn kill_daemon(world: &mut World, at: usize, most: u64) {
    world.gates[at].close();
    world.daemons[at].signal("KILL");
    world.daemons[at].wait();
    world.pause(most);
    world.daemons[at] = world.daemon(at);
    world.gates[at].open(&world.daemons[at]);
}

fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
}

fn signal_engine(world: &World, at: usize, name: &str) -> Option<u32> {
    let engine = world.daemons[at].engines().first().copied();
    engine.into_iter().for_each(|engine| signal(engine, name));
    engine
}

fn cut(world: &mut World, link: Link, most: u64) {
    // Without namespaces the members' own links cannot be cut: the member is stopped instead.
    match (world.links.cut(link, true), link) {
        (false, Link::MemberMembers(at)) => Fault::StopMember.strike(world, at, most),
        _ => {
            world.pause(most);
            world.links.cut(link, false);
        }
    }
}

fn slow_disk(world: &mut World, most: u64) {
    let members: Vec<u32> = world.store.members.iter().map(|member| member.pid()).collect();
    if let Some(disk) = &world.slow_disk {
        members.iter().for_each(|pid| disk.hold(*pid, true));
        world.pause(most);
        let disk = world.slow_disk.as_ref();
        return members.iter().for_each(|pid| disk.into_iter().for_each(|disk| disk.hold(*pid, false)));
    }
    let end = Instant::now() + Duration::from_millis(200 + world.draw(most));
    while Instant::now() < end {
        members.iter().for_each(|pid| signal(*pid, "STOP"));
        sleep(Duration::from_millis(700));
        members.iter().for_each(|pid| signal(*pid, "CONT"));
        sleep(Duration::from_millis(100));
    }
}

/// Starts all members anew, one after the other, so that there is a quorum for most of the time.
fn restart_members(world: &mut World, more: &[&str]) {
    for member in &mut world.store.members {
        member.kill();
        member.restart_with(more);
        sleep(Duration::from_millis(700));
    }
}

/// Members with a quota that is used up refuse every write but deletions and leases.
fn full_store(world: &mut World, most: u64) {
    restart_members(world, &["--quota-backend-bytes", "4096"]);
    world.pause(most);
    restart_members(world, &[]);
    let address = world.store.members[0].address.parse().unwrap();
    let ask = |body: &Value| {
        let answers = TcpStream::connect(address).is_ok();
        let answer = answers.then(|| http::post(address, "/v3/maintenance/alarm", body));
        answer.filter(|answer| answer.status == 200).map(|answer| answer.json())
    };
    // Each member that was full has raised an alarm of its own.
    crate::daemon::until("the alarms are disarmed", || {
        let Some(raised) = ask(&json!({ "action": "GET" })) else { return false };
        let raised = raised["alarms"].as_array().cloned().unwrap_or_default();
        for alarm in &raised {
            ask(&json!({ "action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"] }));
        }
        raised.is_empty()
    });
}

/// A store that begins again with what it had a while ago. What it had told until then is checked first.
fn restored_backup(world: &mut World, most: u64) {
    if !std::mem::replace(&mut world.has_backup, true) {
        world.store.back_up();
        world.pause(most);
    }
    // Nothing is written while the history is read, so that nothing of it is lost with the store.
    cut_all_from_store(world, true);
    world.check_history();
    world.store.restore();
    cut_all_from_store(world, false);
    world.has_backup = false;
}

fn cut_all_from_store(world: &World, is_cut: bool) {
    for host in 0..HOSTS {
        world.links.cut(Link::HostStore(host), is_cut);
    }
}

fn operate(world: &mut World, at: usize) {
    let model = MODELS[usize::try_from(world.draw(MODELS.len() as u64)).unwrap()];
    let (host, store) = (world.names[at].clone(), world.store.address());
    // Refusals are answers too: the host may be full, or gone.
    let act = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.arg("fleet").args(words).args(["--store", &store]).output().unwrap();
    };
    act(&["move", model, &host]);
    act(&["drain", &host]);
    sleep(Duration::from_millis(500));
    act(&["uncordon", &host]);
}
