//! Messages as JSON and YAML, by the protobuf JSON mapping's names: what `grpcurl` prints, and `kubectl` users expect.
//!
//! lowerCamelCase; 64-bit numbers as numbers, for jq, where the mapping would have strings; empty fields are there, so that
//! `.cpuIds[]` always works; a message that is absent (a topology) is absent.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;
use thiserror::Error;

use crate::proto::DESCRIPTORS;

/// Why a message cannot be printed.
#[derive(Debug, Error)]
pub(super) enum MessageError {
    /// The program's own descriptors, or a message against them.
    #[error("the message cannot be described")]
    Describe(#[from] prost_reflect::DescriptorError),
    /// The descriptors do not have this message.
    #[error("no message is called {0}")]
    Unknown(&'static str),
    /// The message does not fit its own description.
    #[error("the message cannot be read")]
    Decode(#[from] prost::DecodeError),
    /// JSON.
    #[error("the message cannot be written as JSON")]
    Json(#[from] serde_json::Error),
    /// YAML.
    #[error("the message cannot be written as YAML")]
    Yaml(#[from] serde_norway::Error),
}

/// A message by its full name, such as `v1.ListPodResourcesResponse`.
fn value(name: &'static str, message: &impl Message) -> Result<Value, MessageError> {
    let pool = DescriptorPool::decode(DESCRIPTORS)?;
    let descriptor = pool.get_message_by_name(name).ok_or(MessageError::Unknown(name))?;
    let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())?;
    let options = SerializeOptions::new().stringify_64_bit_integers(false).skip_default_fields(false);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

pub(super) fn json(name: &'static str, message: &impl Message) -> Result<String, MessageError> {
    Ok(format!("{:#}\n", value(name, message)?))
}

pub(super) fn yaml(name: &'static str, message: &impl Message) -> Result<String, MessageError> {
    Ok(serde_norway::to_string(&value(name, message)?)?)
}
