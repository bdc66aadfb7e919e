//! Generates the Rust types and clients from `proto/`, with protox in place of a `protoc` binary.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTOS: [&str; 2] = ["proto/podresources/v1.proto", "proto/podresources/v1alpha1.proto"];
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
