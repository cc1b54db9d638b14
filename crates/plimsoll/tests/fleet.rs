//! Tests of fleets of daemons on this machine, with a real etcd.
//!
//! They cover hops (requests passed between hosts), failover, store outages, intruders, and operator
//! commands.

mod certificates;
#[path = "../../fleet/tests/simulator/checker.rs"]
mod checker;
mod failover;
mod faults;
mod files;
mod hops;
mod intruder;
mod leases;
mod liar;
mod lies;
mod links;
mod manifests;
mod nemesis;
mod network;
mod relay;
mod replicas;
mod rig;
mod secured;
#[path = "../../etcd/tests/real/server.rs"]
mod server;
mod slow_disk;
mod sources;
mod witness;

use rig::{Fleet, header, operator};

use crate::{daemon, http};

#[test]
fn a_host_without_room_passes_a_request_on_and_says_which_host_answered() {
    let fleet = Fleet::start();
    let direct = fleet.ask(0, "one");
    let host = direct.header("plimsoll-host").expect("another host answers").to_owned();
    assert!(host == "h1" || host == "h2", "{host}");
    // The seat stands: every daemon finds the model where it is.
    let owner = if host == "h1" { 1 } else { 2 };
    let own = fleet.ask(owner, "one");
    assert_eq!((own.status, own.header("plimsoll-host")), (200, None));
    let other = fleet.ask(3 - owner, "one");
    assert_eq!(other.header("plimsoll-host"), Some(host.as_str()));
    assert_eq!(other.json()["choices"], own.json()["choices"]);
    // A stream passes with all its events.
    let stream = http::chat_stream(fleet.hosts[0].address, "one");
    assert_eq!((stream.status, stream.header("plimsoll-host")), (200, Some(host.as_str())));
    assert_eq!(stream.events().len(), http::chat_stream(fleet.hosts[owner].address, "one").events().len());
    // Nothing of a request touches the store.
    let before = fleet.revision();
    for _ in 0..20 {
        assert_eq!(http::chat(fleet.hosts[0].address, "one").status, 200);
    }
    assert!(fleet.revision() <= before + 4, "only news of idle models is written");
    let metrics = http::get(fleet.hosts[0].address, "/metrics").text();
    assert!(
        metrics.contains("plimsoll_fleet_hosts 3\nplimsoll") || metrics.contains("plimsoll_fleet_hosts 3\n#")
    );
    assert!(metrics.contains("plimsoll_fleet_store_answers 1\n"), "{metrics}");
    // No key and no command is in the store.
    let dump = fleet.dump();
    assert!(dump.contains("seats/one/0"), "{dump}");
    for secret in [rig::KEY, "fake-engine", "--port"] {
        assert!(!dump.contains(secret), "{secret}: {dump}");
    }
}

#[test]
fn a_model_of_a_killed_host_is_answered_elsewhere_after_its_lease() {
    let fleet = Fleet::start();
    let host = fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned();
    let owner = if host == "h1" { 1 } else { 2 };
    fleet.hosts[owner].signal("KILL");
    let began = std::time::Instant::now();
    let answer = fleet.ask(0, "one");
    let other = if owner == 1 { "h2" } else { "h1" };
    assert_eq!(answer.header("plimsoll-host"), Some(other));
    // A lease of 10 s, which begins anew where the store's leader changes.
    assert!(began.elapsed().as_secs() < 45, "{:?}", began.elapsed());
}

#[test]
fn while_the_store_is_silent_loaded_models_are_served_and_others_are_given_the_reason() {
    let mut fleet = Fleet::start();
    fleet.ask(0, "one");
    fleet.store.members.iter_mut().for_each(server::Member::kill);
    daemon::until("the silence is noticed", || {
        let refused = http::chat(fleet.hosts[0].address, "two");
        refused.status == 503 && refused.json()["error"]["code"] == "store_unreachable"
    });
    for _ in 0..10 {
        assert_eq!(http::chat(fleet.hosts[0].address, "one").status, 200);
    }
    fleet.store.members.iter_mut().for_each(server::Member::restart);
    assert_eq!(fleet.ask(0, "two").status, 200);
}

#[test]
fn a_stranger_and_an_old_token_are_refused() {
    let fleet = Fleet::start();
    let host = fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned();
    let owner = if host == "h1" { 1 } else { 2 };
    let address = fleet.hosts[owner].address;
    let hop = |key: &str, seat: &str| {
        header(
            address,
            &[
                ("plimsoll-hop", "1"),
                ("authorization", key),
                ("plimsoll-seat", seat),
                ("plimsoll-model", "one"),
            ],
        )
    };
    let key = format!("Bearer {}", rig::KEY);
    for wrong in ["", "Bearer ", "Bearer guess", "Basic Zm9v"] {
        assert_eq!(hop(wrong, "x:1").status, 401, "{wrong}");
    }
    assert_eq!(hop(&key, "").status, 400);
    let old = hop(&key, "another-life:1");
    assert_eq!((old.status, old.header("plimsoll-declined")), (503, Some("1")));
    assert_eq!(old.json()["error"]["code"], "stale_seat");
    let seat = fleet.seat("one");
    assert_eq!(hop(&key, &seat).status, 200);
    let (life, revision) = seat.rsplit_once(':').unwrap();
    let burnt = format!("{life}:{}", revision.parse::<u64>().unwrap() - 1);
    assert_eq!(hop(&key, &burnt).status, 503);
}

#[test]
fn an_operator_moves_a_model_and_drains_a_host() {
    let fleet = Fleet::start();
    let host = fleet.ask(0, "one").header("plimsoll-host").unwrap().to_owned();
    let other = if host == "h1" { "h2" } else { "h1" };
    assert!(operator(&fleet, &["status"]).contains("one: "));
    assert!(operator(&fleet, &["move", "one", other]).contains("is now assigned to"));
    daemon::until("the model moves", || fleet.ask(0, "one").header("plimsoll-host") == Some(other));
    operator(&fleet, &["leave", other]);
    daemon::until("the model leaves", || fleet.ask(0, "one").header("plimsoll-host") == Some(&*host));
    assert!(operator(&fleet, &["status"]).contains("drains"));
    operator(&fleet, &["uncordon", other]);
    assert!(!operator(&fleet, &["status"]).contains("drains"));
}

#[test]
fn a_restored_backup_makes_former_seats_worthless() {
    let mut fleet = Fleet::start();
    fleet.ask(0, "one");
    fleet.store.back_up();
    fleet.ask(0, "two");
    let former = fleet.seat("two");
    fleet.store.restore();
    let loaded = |fleet: &Fleet| fleet.hosts.iter().map(|host| host.engines().len()).sum::<usize>();
    assert_eq!(loaded(&fleet), 2, "a restored store unloads nothing");
    daemon::until("the restored store is noticed", || {
        fleet.hosts.iter().any(|host| host.talk().contains("was restored from a backup"))
    });
    // A host that has not noticed yet may be given its model again, so the former revision must be past.
    fleet.write_past(former.rsplit_once(':').unwrap().1.parse().unwrap());
    for model in ["one", "two"] {
        fleet.ask(0, model);
    }
    assert_ne!(fleet.seat("two"), former, "a seat of the lost history is not used again");
}

#[test]
fn a_second_host_of_a_name_is_no_member_and_says_so() {
    let fleet = Fleet::start();
    fleet.ask(1, "one");
    let second = fleet.host(1, "1GiB");
    second.reported("another host at");
    let hosts = operator(&fleet, &["ps"]);
    assert!(hosts.contains(&fleet.hosts[1].address.to_string()), "{hosts}");
    assert!(!hosts.contains(&second.address.to_string()), "{hosts}");
}

#[test]
fn invalid_fleet_settings_are_rejected_at_the_start() {
    let refused = |table: &str, more: &[&str]| {
        let setup = daemon::Setup::new().model("one", "100MiB", "", "").config(table);
        more.iter().fold(setup, |setup, argument| setup.argument(argument)).refused()
    };
    let store = &["--fleet", "etcd://127.0.0.1:1"];
    assert!(refused("", store).contains("neither `identity` nor `key-file`"));
    assert!(refused("[fleet]\nkey-file = \"/nowhere/key\"\n", store).contains("/nowhere/key"));
    assert!(refused("[fleet]\nkey-file = \"/dev/null\"\n", store).contains("is not a regular file"));
    assert!(refused("[fleet]\nhost = \"a b\"\n", store).contains("not a valid host name"));
    assert!(refused("", &["--fleet", "http://a"]).contains("the address does not begin with etcd://"));
    assert!(refused("[fleet]\nstores = \"x\"\n", &[]).contains("stores"));
}

#[test]
fn a_trial_answers_through_a_host_without_the_model_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let target = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.env("PLIMSOLL_HOME", target.join("engine-home")).env("TMPDIR", folder.path());
    let output = command.args(["fleet", "try", "--once", "--etcd"]).arg(server::program()).output().unwrap();
    let stated = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stated}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stated.contains("has no model file; host-"), "{stated}");
    assert!(!stated.contains("host-1 answered"), "{stated}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_trial_without_etcd_says_where_it_is_to_be_had() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["fleet", "try", "--etcd", "/nowhere/etcd", "--engine", "/bin/true"]);
    let output = command.output().unwrap();
    let stated = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stated.contains("etcd-server"), "{stated}");
}
