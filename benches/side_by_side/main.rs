//! What a List costs the process that serves it, side by side: the proxy, the same without admission, a plain socket echo of the same
//! bytes, a naive tonic server, a simulated kubelet. Each serves the same pods from a process of its own; rounds are interleaved, so that a slow moment of the
//! machine meets all of them; the figure is CPU time of the serving process per request, and its ratio to the echo's, round by round.
//!
//! `cargo bench --bench side_by_side`; `-- --rounds 30 --pods 110,500` for other sizes, `--one-core` to have the caller on the servers' core.

mod load;
mod process;
mod servers;
mod table;

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use podresources_proxy::client::{Connection, Limits, method};

use load::Load;
use process::{Core, Server};
use table::Table;

/// Calls of one variant in one round; a round of all variants takes about a second.
const CALLS: usize = 1_500;
/// How the calls come: connections at the same time, and calls in flight on each. The second and third form differ from the first in
/// how often the process sleeps and is woken, which on a virtual machine costs more than all the rest.
const FORMS: [(usize, usize); 3] = [(1, 1), (8, 1), (1, 8)];

/// Settings of the command line.
struct Settings {
    rounds: usize,
    pods: Vec<usize>,
    /// Whether the caller shares the servers' core.
    shared: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut settings = Settings { rounds: 15, pods: vec![110, 500], shared: false };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            // Played by ourselves, as a child.
            "--serve-echo" => return servers::echo(&value()?, value()?.parse()?),
            "--serve-tonic" => return servers::tonic(&value()?, &value()?),
            "--rounds" => settings.rounds = value()?.parse()?,
            "--pods" => settings.pods = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--one-core" => settings.shared = true,
            // What `cargo bench` and `cargo test --benches` add.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}; there are --rounds, --pods and --one-core").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for pods in &settings.pods {
        runtime.block_on(compare(*pods, &settings))?;
    }
    Ok(())
}

async fn compare(pods: usize, &Settings { rounds, shared, .. }: &Settings) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let socket = |name: &str| at(name).join("kubelet.sock");
    let pods_text = pods.to_string();

    // All servers on one core, the caller on another: where each of them runs would otherwise be chance, and waking a process on another
    // core costs more than all that a call does.
    process::pin(Core::Last)?;
    let kubelet = Server::product("simulated kubelet", &socket("kubelet"), |command| {
        command.args(["simulate", "--no-rate-limit", "--pods", &pods_text, "--socket"]).arg(socket("kubelet"));
    })?;
    let list = capture(&socket("kubelet")).await?;
    std::fs::write(at("list.bin"), &list)?;
    // The proxy as it is shipped, but for what listens beside it.
    let front = |command: &mut Command, name: &str| {
        command.args(["--admin-address", "off", "--admin-socket", "off", "--state-dir", "off", "--log-level", "error"]);
        command.arg("--kubelet-socket").arg(socket("kubelet"));
        command.arg("--kubelet-dir").arg(at("kubelet")).arg("--listen-socket").arg(socket(name));
    };
    let variants = [
        Server::own("plain socket echo", &socket("echo"), |command| {
            command.arg("--serve-echo").arg(socket("echo")).arg((list.len() + load::REPLY_EXTRA).to_string());
        })?,
        Server::product("podresources-proxy", &socket("proxy"), |command| {
            // Nothing that the load does may be refused: it is one client, and calls as fast as it can.
            command.args(["run", "--client-rate", "1000000", "--client-burst", "1000000"]);
            front(command, "proxy");
        })?,
        Server::product("without admission", &socket("open"), |command| {
            command.args(["run", "--admission", "off"]);
            front(command, "open");
        })?,
        Server::own("naive tonic", &socket("tonic"), |command| {
            command.arg("--serve-tonic").arg(socket("tonic")).arg(at("list.bin"));
        })?,
        kubelet,
    ];
    process::pin(if shared { Core::Last } else { Core::First })?;
    for (connections, in_flight) in FORMS {
        let mut table = Table::new(variants.iter().map(|variant| variant.name));
        let mut loads = Vec::new();
        for variant in &variants {
            loads.push(Load::connect(variant, connections, in_flight, list.len()).await?);
        }
        // Round zero warms up and does not count.
        for round in 0..=rounds {
            for (column, (variant, load)) in variants.iter().zip(&mut loads).enumerate() {
                let before = variant.cpu_time()?;
                load.run(CALLS).await?;
                let spent = variant.cpu_time()?.saturating_sub(before);
                if round > 0 {
                    table.add(column, spent / u32::try_from(CALLS)?);
                }
            }
        }
        let (bytes, cores) =
            (list.len(), if shared { "caller and servers on one core" } else { "caller and servers each on a core" });
        println!(
            "\nList of {pods} pods, {bytes} bytes; {connections} connection(s), {in_flight} call(s) in flight on each; {cores}; {rounds} rounds of {CALLS} calls"
        );
        print!("{table}");
    }
    Ok(())
}

/// The List that all variants serve.
async fn capture(socket: &Path) -> Result<bytes::Bytes, Box<dyn Error>> {
    let connection = Connection::connect(socket, Limits::default()).await?;
    Ok(connection.unary(method::LIST, bytes::Bytes::new(), Duration::from_secs(10)).await?.into_inner())
}
