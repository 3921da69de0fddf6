//! hostInfo: information about the machine.

use bson::{DateTime, RawDocumentBuf, raw::cstr, rawdoc};

use super::{Auth, Command, Run};
use crate::{
    auth::action::action,
    context::{Call, Outcome},
    system::{self, SystemInfo},
};

pub(super) const COMMAND: Command = Command {
    name: "hostInfo",
    help: "Returns what is known of the machine.",
    auth: Auth::Cluster(action("hostInfo")),
    run: Run::Now(run),
    ..Command::DEFAULT
};

fn run(call: &Call) -> Outcome {
    let info = SystemInfo::read();
    let mut machine = rawdoc! {
        "currentTime": DateTime::now(),
        "hostname": call.node().host.as_str(),
        "cpuAddrSize": 64,
        "memSizeMB": info.memory_mb,
        "memLimitMB": info.memory_mb,
        "numCores": info.cores,
    };
    if call.profile().host_info_cores {
        machine.append(cstr!("numCoresAvailableToProcess"), info.cores);
        machine.append(cstr!("numPhysicalCores"), info.cores);
        machine.append(cstr!("numCpuSockets"), 1);
    }
    machine.append(cstr!("cpuArch"), std::env::consts::ARCH);
    machine.append(cstr!("numaEnabled"), false);
    if call.profile().host_info_cores {
        machine.append(cstr!("numNumaNodes"), 1);
    }
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("system"), machine);
    body.append(
        cstr!("os"),
        rawdoc! { "type": "Linux", "name": info.os_name.as_str(), "version": format!("Kernel {}", info.kernel) },
    );
    body.append(
        cstr!("extra"),
        rawdoc! {
            "versionString": info.version_string.as_str(),
            "kernelVersion": info.kernel.as_str(),
            "cpuFrequencyMHz": info.cpu_mhz.as_str(),
            "cpuFeatures": info.cpu_features.as_str(),
            "pageSize": system::PAGE_SIZE,
            "numPages": info.pages,
            "maxOpenFiles": info.open_files_max,
        },
    );
    Ok(body.into())
}
