//! Who the program is: capabilities that outlive the change of user id and the exec, and no others.

use anyhow::{Context as _, Result, anyhow};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits,
};
use vm_guest::Identity;

/// Prepares this thread for the spawn of the program. The permitted set stays, as the change of user id still needs it.
pub(crate) fn take(identity: &Identity) -> Result<()> {
    let Some(names) = &identity.capabilities else { return Ok(()) };
    let wanted = named(names)?;
    for capability in CapabilitySet::all().iter() {
        // What this kernel does not know cannot be dropped.
        if !wanted.contains(capability) && capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability).context("cannot drop a capability from the bounding set")?;
        }
    }
    let now = capabilities(None).context("cannot read the capabilities")?;
    set_capabilities(None, CapabilitySets { inheritable: wanted, ..now }).context("cannot set the inheritable capabilities")?;
    // Otherwise the change to an ordinary user id would clear the ambient set.
    set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP).context("cannot set the secure bits")?;
    for capability in wanted.iter() {
        configure_capability_in_ambient_set(capability, true).with_context(|| format!("cannot make {capability:?} ambient"))?;
    }
    Ok(())
}

/// What was prepared is for the program alone.
pub(crate) fn take_back() -> Result<()> {
    clear_ambient_capability_set().context("cannot clear the ambient capabilities")
}

fn named(names: &[String]) -> Result<CapabilitySet> {
    names.iter().try_fold(CapabilitySet::empty(), |set, name| {
        let flag = name.to_uppercase();
        let flag = flag.strip_prefix("CAP_").unwrap_or(&flag);
        let found = CapabilitySet::from_name(flag).ok_or_else(|| anyhow!("`{name}` is no capability, such as cap_bpf"))?;
        Ok(set | found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_capability_is_told() {
        assert_eq!(named(&["cap_bpf".into(), "PERFMON".into()]).unwrap(), CapabilitySet::BPF | CapabilitySet::PERFMON);
        assert!(named(&["cap_fly".into()]).unwrap_err().to_string().contains("`cap_fly`"));
    }
}
