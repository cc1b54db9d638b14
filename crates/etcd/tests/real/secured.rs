//! Tests with an etcd over TLS that requires a certificate, and with one that requires a user.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll_etcd::{Etcd, StoreAccess, StoreAddress};
use plimsoll_fleet::{KeySpace, TransactionOutcome};
use serde_json::{Value, json};

use super::server::Cluster;
use super::{drain, http, ready, record};

fn client(cluster: &Cluster, access: &StoreAccess) -> Etcd {
    let address: StoreAddress = cluster.address().parse().unwrap();
    Etcd::new(&address, KeySpace::of(&address.fleet).unwrap(), access).unwrap()
}

/// The authority and the certificate that the store requires.
fn certified(cluster: &Cluster) -> StoreAccess {
    let file = |name| Some(cluster.file(name));
    StoreAccess {
        ca: file("ca.pem"),
        certificate: file("client.pem"),
        certificate_key: file("client.key"),
        ..StoreAccess::default()
    }
}

async fn post(cluster: &Cluster, path: &str, body: Value) {
    let answer = http(&cluster.set_up_address(), path, &body.to_string()).await;
    assert!(answer.contains(" 200 OK"), "{path}: {answer}");
}

/// Users `root` and `plimsoll`, whose role has keys with this prefix; then requests without a user are
/// refused.
async fn require_users(cluster: &Cluster, prefix: &str) {
    let permission = json!({ "permType": "READWRITE", "key": STANDARD.encode(prefix), "range_end": STANDARD.encode(
        format!("{}0", prefix.trim_end_matches('/'))) });
    for (path, body) in [
        ("user/add", json!({ "name": "root", "password": "root" })),
        ("user/grant", json!({ "user": "root", "role": "root" })),
        ("role/add", json!({ "name": "fleets" })),
        ("role/grant", json!({ "name": "fleets", "perm": permission })),
        ("user/add", json!({ "name": "plimsoll", "password": "a secret" })),
        ("user/grant", json!({ "user": "plimsoll", "role": "fleets" })),
        ("enable", json!({})),
    ] {
        post(cluster, &format!("/v3/auth/{path}"), body).await;
    }
}

fn password(cluster: &Cluster, text: &str) -> Option<PathBuf> {
    let path = cluster.file("password");
    std::fs::write(&path, text).unwrap();
    Some(path)
}

#[tokio::test]
async fn a_store_over_tls_takes_requests_with_its_certificate() {
    let cluster = Cluster::secured();
    let store = client(&cluster, &certified(&cluster));
    ready(&store).await;
    let mut watch = store.watch(store.header().await.unwrap().revision + 1).await.unwrap();
    assert!(matches!(store.transact(&drain("a", 0, record()), 0).await, TransactionOutcome::Applied(_)));
    assert_eq!(watch.next().await.unwrap().len(), 1);
}

#[tokio::test]
async fn refusals_of_tls_name_the_setting() {
    let cluster = Cluster::secured();
    let good = certified(&cluster);
    ready(&client(&cluster, &good)).await;
    let error = async |access: &StoreAccess| client(&cluster, access).header().await.unwrap_err().to_string();
    let stranger = StoreAccess { ca: Some(cluster.file("client.pem")), ..good.clone() };
    let stranger = error(&stranger).await;
    assert!(stranger.contains("hint: name the file of that authority as `store-ca`"), "{stranger}");
    let without = StoreAccess { certificate: None, certificate_key: None, ..good.clone() };
    let without = error(&without).await;
    assert!(without.contains("`store-certificate`"), "{without}");
    let plain: StoreAddress = cluster.address().replace("etcds", "etcd").parse().unwrap();
    let plain = Etcd::new(&plain, KeySpace::of("test").unwrap(), &StoreAccess::default()).unwrap();
    let plain = plain.header().await.unwrap_err().to_string();
    assert!(plain.contains("hint: the address of a store over TLS begins with etcds://"), "{plain}");
    let port = cluster.set_up_address();
    let tls: StoreAddress = format!("etcds://{port}").parse().unwrap();
    let tls = Etcd::new(&tls, KeySpace::of("test").unwrap(), &good).unwrap();
    let tls = tls.header().await.unwrap_err().to_string();
    assert!(tls.contains("hint: the address of a store without TLS begins with etcd://"), "{tls}");
}

#[tokio::test]
async fn a_user_has_a_token_as_long_as_the_store_requires_one() {
    let mut cluster = Cluster::secured();
    let user = Some("plimsoll".to_owned());
    let access = StoreAccess { user, password_file: password(&cluster, "a secret\n"), ..certified(&cluster) };
    let store = client(&cluster, &access);
    // Before users are required.
    ready(&store).await;
    require_users(&cluster, "/plimsoll/").await;
    let TransactionOutcome::Applied(revision) = store.transact(&drain("a", 0, record()), 0).await else {
        panic!("a token is got where one is required from now on")
    };
    let mut watch = store.watch(revision).await.unwrap();
    assert_eq!(watch.next().await.unwrap().len(), 1);
    // A member that was restarted has forgotten every token.
    cluster.members[0].kill();
    cluster.members[0].restart();
    ready(&store).await;
    assert!(matches!(store.transact(&drain("b", 0, record()), 0).await, TransactionOutcome::Applied(_)));
    assert_eq!(store.watch(revision).await.unwrap().next().await.unwrap().len(), 2);
}

#[tokio::test]
async fn refusals_of_users_name_the_setting() {
    let cluster = Cluster::secured();
    let without = certified(&cluster);
    ready(&client(&cluster, &without)).await;
    require_users(&cluster, "/other/").await;
    let error = async |access: &StoreAccess| client(&cluster, access).header().await.unwrap_err().to_string();
    let nobody = error(&without).await;
    assert!(nobody.contains("hint: the store requires a user: set `store-user`"), "{nobody}");
    let user = Some("plimsoll".to_owned());
    let wrong = StoreAccess { user, password_file: password(&cluster, "wrong"), ..without };
    let refused = error(&wrong).await;
    assert!(refused.contains("hint: check that `store-user`"), "{refused}");
    password(&cluster, "a secret");
    let denied = error(&wrong).await;
    assert!(denied.contains("role grant-permission") && denied.contains("permission denied"), "{denied}");
    assert!(!denied.contains("a secret"), "{denied}");
}
