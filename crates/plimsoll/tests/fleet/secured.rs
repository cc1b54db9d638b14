//! Test of a fleet whose etcd speaks TLS, requires certificates, and requires a user.

use std::process::{Command, Output};

use serde_json::json;

use super::rig::KEY;
use super::server::Cluster;
use crate::daemon::{Daemon, Setup, until};
use crate::http;

const PASSWORD: &str = "a secret of the store";

fn set_up(store: &Cluster) {
    let address = store.set_up_address().parse().unwrap();
    let post =
        |path: &str, body: &serde_json::Value| http::post(address, &format!("/v3/auth/{path}"), body).status;
    until("the store answers", || std::net::TcpStream::connect(store.set_up_address()).is_ok());
    // All keys that begin with "/plimsoll/": up to "/plimsoll0".
    let keys = json!({ "permType": "READWRITE", "key": "L3BsaW1zb2xsLw==", "range_end": "L3BsaW1zb2xsMA==" });
    until("a user can be added", || post("user/add", &json!({ "name": "root", "password": "root" })) == 200);
    for (path, body) in [
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("role/add", json!({ "name": "fleets" })),
        ("role/grant", json!({ "name": "fleets", "perm": keys })),
        ("user/add", json!({ "name": "plimsoll", "password": PASSWORD })),
        ("user/grant", json!({ "user": "plimsoll", "role": "fleets" })),
        ("enable", json!({})),
    ] {
        assert_eq!(post(path, &body), 200, "{path}");
    }
    std::fs::write(store.file("password"), format!("{PASSWORD}\n")).unwrap();
    std::fs::write(store.file("key"), KEY).unwrap();
}

fn host(store: &Cluster, number: usize, memory: &str) -> Daemon {
    let file = |name: &str| store.file(name).display().to_string();
    let table = format!(
        "[fleet]\nstore = \"{}\"\nhost = \"h{number}\"\nkey-file = \"{}\"\nstore-ca = \"{}\"\nstore-certificate = \"{}\"\n\
        store-certificate-key = \"{}\"\nstore-user = \"plimsoll\"\nstore-password-file = \"{}\"\n",
        store.address(),
        file("key"),
        file("ca.pem"),
        file("client.pem"),
        file("client.key"),
        file("password"),
    );
    Setup::with_cards(&[&format!("name=host,kind=host,total={memory}")])
        .model("one", "100MiB", "", "")
        .config(&table)
        .start()
}

fn status(store: &Cluster, user: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["fleet", "status", "--store", &store.address()]).args(user);
    for (name, file) in [("CA", "ca.pem"), ("CERTIFICATE", "client.pem"), ("CERTIFICATE_KEY", "client.key")] {
        command.env(format!("PLIMSOLL_FLEET_{name}"), store.file(file));
    }
    command.output().unwrap()
}

#[test]
fn hosts_share_models_by_a_store_with_tls_and_users() {
    let store = Cluster::secured();
    set_up(&store);
    let hosts = [host(&store, 0, "64MiB"), host(&store, 1, "1GiB")];
    // The first host has no room.
    until("a request is forwarded", || http::chat(hosts[0].address, "one").status == 200);
    let password = store.file("password").display().to_string();
    let shown = status(&store, &["--store-user", "plimsoll", "--store-password-file", &password]);
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.status.success() && text.contains("h0") && text.contains("h1"), "{text}");
    let refused = status(&store, &[]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text.contains("set `store-user` and `store-password-file`"), "{text}");
    let log: String = hosts.iter().map(Daemon::talk).collect();
    assert!(!log.contains(PASSWORD), "{log}");
}
