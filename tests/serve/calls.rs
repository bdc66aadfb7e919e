//! Calls of all kinds, one by one.

use podresources_proxy::answer::Ask;

use crate::client::{ALLOCATABLE, ALPHA_LIST, Client, LIST};
use crate::fake::{Fake, Running};

#[tokio::test]
async fn list_allocatable_and_alpha_list_get_the_bytes_as_they_are_and_status_zero() {
    let fake = Fake::replying(b"not even protobuf \xff");
    let server = Running::new(&fake);
    let mut client = Client::connect(&server.path()).await.unwrap();
    for (path, ask) in [(LIST, Ask::List), (ALLOCATABLE, Ask::Allocatable), (ALPHA_LIST, Ask::AlphaList)] {
        client.ask(path, |_| {}).await.assert_ok(b"\0\0\0\0\x13not even protobuf \xff");
        assert_eq!(fake.last_asked().0, ask);
    }
    server.stop().await;
}
