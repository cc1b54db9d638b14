//! Tests of the messages to systemd, over sockets of the tests' own.

use super::*;

/// A manager with these variables, and nothing of this process's environment.
fn manager(variables: &[(&str, &str)]) -> ServiceManager {
    ServiceManager::read(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn next(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = [0; 512];
    let length = socket.recv(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn each_change_of_state_is_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let heard = UnixDatagram::bind(&path).unwrap();
    let manager = manager(&[(SOCKET, path.to_str().unwrap())]);
    manager.ready("2 models\nMAINPID=1");
    assert_eq!(next(&heard), "READY=1\nSTATUS=2 models MAINPID=1");
    manager.reloading();
    let reported = next(&heard);
    let time = reported.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
    assert!(time.parse::<u64>().unwrap() > 0, "{reported}");
    manager.stopping();
    assert_eq!(next(&heard), "STOPPING=1");
    // A reload that ends now.
    manager.ready("2 models");
    heard.set_nonblocking(true).unwrap();
    assert!(heard.recv(&mut [0; 512]).is_err());
    assert_eq!(manager.watchdog, None);
}

#[test]
fn an_abstract_name_is_a_socket_too() {
    let name = format!("plimsoll-notify-{}", std::process::id());
    let heard = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    manager(&[(SOCKET, &format!("@{name}"))]).stopping();
    assert_eq!(next(&heard), "STOPPING=1");
}

#[test]
fn a_hostile_value_is_ignored() {
    let long = format!("/{}", "x".repeat(200));
    for name in ["", "@", "/", "relative", "vsock:2:9999", "../x", &long, &format!("@{long}")] {
        let manager = manager(&[(SOCKET, name), (WATCHDOG, "1000")]);
        assert!(manager.socket.is_none(), "{name}");
        manager.ready("nothing hears it");
    }
    // Well-formed, and no socket or another program's.
    for name in ["/dev/null", "/no/such/socket", "@plimsoll-of-nobody"] {
        manager(&[(SOCKET, name)]).ready("nothing hears it");
    }
}

#[test]
fn a_manager_that_does_not_read_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let _unread = UnixDatagram::bind(&path).unwrap();
    let manager = manager(&[(SOCKET, path.to_str().unwrap())]);
    // More than any queue of a socket holds (net.unix.max_dgram_qlen).
    (0..5_000).for_each(|_| manager.stopping());
}

#[test]
fn a_watchdog_counts_for_the_process_that_it_names() {
    let own = std::process::id().to_string();
    let watched = |time, process: Option<&str>| {
        let variables = [(SOCKET, "@x"), (WATCHDOG, time), (WATCHDOG_PROCESS, process.unwrap_or_default())];
        manager(&variables[..if process.is_some() { 3 } else { 2 }]).watchdog
    };
    assert_eq!(watched("2000000", Some(&own)), Some(Duration::from_secs(2)));
    assert_eq!(watched("2000000", None), Some(Duration::from_secs(2)));
    assert_eq!(watched("2000000", Some("1")), None);
    assert_eq!(watched("2000000", Some("x")), None);
    for hostile in ["0", "-1", "", "1e9", "99999999999999999999999999"] {
        assert_eq!(watched(hostile, None), None, "{hostile}");
    }
}

#[tokio::test]
async fn signs_of_life_come_as_long_as_the_thread_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let heard = tokio::net::UnixDatagram::bind(&path).unwrap();
    let manager = manager(&[(SOCKET, path.to_str().unwrap()), (WATCHDOG, "20000")]);
    let three = async {
        for _ in 0..3 {
            let mut bytes = [0; 64];
            let length = heard.recv(&mut bytes).await.unwrap();
            assert_eq!(&bytes[..length], b"WATCHDOG=1");
        }
    };
    tokio::select! {
        () = three => {}
        () = manager.keep_alive() => unreachable!("it has no end"),
    }
}
