//! The memory that the machine and the job object leave free.

use windows_sys::Win32::System::JobObjects::{
    JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_PROCESS_MEMORY,
};

use super::system_calls::{job_limits, memory_status, process_memory};
use crate::platform::memory::{Available, Limit};

/// Returns the memory that is available now. Windows refuses memory beyond the size of the paging
/// files, so the rest of that is a limit as well.
pub fn available() -> Option<Available> {
    let status = memory_status()?;
    let machine = status.ullAvailPhys.min(status.ullAvailPageFile);
    let machine = Available { bytes: machine, limit: Limit::Machine };
    left_in_job()
        .map(|bytes| Available { bytes, limit: Limit::Job })
        .into_iter()
        .chain([machine])
        .min_by_key(|available| available.bytes)
}

/// Returns the bytes that the job object's limits leave free. The usage of other processes in the
/// job is unknown.
fn left_in_job() -> Option<u64> {
    let limits = job_limits()?;
    let flags = limits.BasicLimitInformation.LimitFlags;
    let limit = [
        (JOB_OBJECT_LIMIT_PROCESS_MEMORY, limits.ProcessMemoryLimit),
        (JOB_OBJECT_LIMIT_JOB_MEMORY, limits.JobMemoryLimit),
    ]
    .into_iter()
    .filter(|(flag, _)| flags & flag != 0)
    .map(|(_, limit)| limit)
    .min()?;
    let used = process_memory()?.PrivateUsage;
    Some(limit.saturating_sub(used) as u64)
}
