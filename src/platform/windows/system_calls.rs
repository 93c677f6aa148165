//! The functions of Windows that have no safe interface.

#![allow(unsafe_code, reason = "they take pointers")]

use std::{
    io,
    os::windows::io::{AsHandle, AsRawHandle},
    ptr,
};

use windows_sys::{
    Win32::{
        Foundation::HANDLE,
        Storage::FileSystem::GetDiskFreeSpaceExW,
        System::{
            Console::SetConsoleCtrlHandler,
            JobObjects::{
                JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JOBOBJECTINFOCLASS,
                JobObjectCpuRateControlInformation, JobObjectExtendedLimitInformation,
                QueryInformationJobObject,
            },
            Pipes::PeekNamedPipe,
            ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS_EX},
            SystemInformation::{
                GetLogicalProcessorInformationEx, GlobalMemoryStatusEx, MEMORYSTATUSEX, RelationAll,
            },
            Threading::{
                GetCurrentProcess, GetProcessAffinityMask, PROCESS_CREATION_FLAGS, SetPriorityClass,
            },
        },
    },
    core::BOOL,
};

/// Maximum bytes of processor records to read. A machine of 2,048 processors has far fewer.
const RECORDS_MAX: u32 = 1 << 22;

/// Returns the memory of the machine.
pub fn memory_status() -> Option<MEMORYSTATUSEX> {
    let length = size_of::<MEMORYSTATUSEX>() as u32;
    let mut status = MEMORYSTATUSEX { dwLength: length, ..Default::default() };
    // SAFETY: the system fills a structure that has the size it states.
    let done = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    (done != 0).then_some(status)
}

/// Returns the bytes that this user may write to the disk with a folder, a path that ends with a zero.
pub fn free_bytes(folder: &[u16]) -> Option<u64> {
    assert_eq!(folder.last(), Some(&0));
    let mut bytes = 0;
    // SAFETY: the path ends with a zero; the system writes one number, and none at null.
    let done = unsafe {
        GetDiskFreeSpaceExW(folder.as_ptr(), &raw mut bytes, ptr::null_mut(), ptr::null_mut())
    };
    (done != 0).then_some(bytes)
}

/// Returns the memory of this process.
pub fn process_memory() -> Option<PROCESS_MEMORY_COUNTERS_EX> {
    let bytes = size_of::<PROCESS_MEMORY_COUNTERS_EX>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS_EX { cb: bytes, ..Default::default() };
    let start = (&raw mut counters).cast();
    // SAFETY: the system fills a structure of `bytes` bytes, of which the shorter one is the start.
    let done = unsafe { K32GetProcessMemoryInfo(this_process(), start, bytes) };
    (done != 0).then_some(counters)
}

/// Returns the limits of the job object of this process; `None` if it is in none.
pub fn job_limits() -> Option<JOBOBJECT_EXTENDED_LIMIT_INFORMATION> {
    job(JobObjectExtendedLimitInformation)
}

/// Returns the flags and the rate of the CPU time that the job object of this process grants;
/// `None` if it is in none.
pub fn job_cpu_rate() -> Option<[u32; 2]> {
    job(JobObjectCpuRateControlInformation)
}

/// Queries the job object of this process. `T` is the structure of the class.
fn job<T: Default>(class: JOBOBJECTINFOCLASS) -> Option<T> {
    let mut found = T::default();
    let (start, bytes) = ((&raw mut found).cast(), size_of::<T>() as u32);
    let (job, returned) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: without a job, the system uses the job of this process. It writes at most `bytes`
    // bytes, the size of `found`. Both callers name a structure of integers, which may have any bits.
    let done = unsafe { QueryInformationJobObject(job, class, start, bytes, returned) };
    (done != 0).then_some(found)
}

/// Returns the records of processors, caches and packages.
pub fn processor_records() -> Option<Vec<u8>> {
    // The first call fails and returns the size.
    let (_, bytes) = read_records(&mut []);
    // Records have fields of 8 bytes, so the buffer is aligned to them.
    let mut buffer = vec![0; bytes.min(RECORDS_MAX).div_ceil(8) as usize];
    let (done, bytes) = read_records(&mut buffer);
    let records = bytemuck::cast_slice(&buffer).get(..bytes as usize)?;
    done.then(|| records.to_vec())
}

/// Reads records into `buffer`. Returns whether they fit, and the bytes that they take.
fn read_records(buffer: &mut [u64]) -> (bool, u32) {
    let mut bytes = size_of_val(buffer) as u32;
    let start = buffer.as_mut_ptr().cast();
    // SAFETY: the system writes at most `bytes` bytes at `start`, where `buffer` has as many.
    let done = unsafe { GetLogicalProcessorInformationEx(RelationAll, start, &raw mut bytes) };
    (done != 0, bytes)
}

/// Returns the mask of the processors in its group that this process may run on; `None` if it runs
/// in several groups, and so may use all of them.
pub fn affinity() -> Option<u64> {
    let (mut process, mut machine) = (0, 0);
    // SAFETY: the system writes two numbers.
    let done =
        unsafe { GetProcessAffinityMask(this_process(), &raw mut process, &raw mut machine) };
    (done != 0 && process != 0).then_some(process as u64)
}

/// Returns the number of bytes that can be read from a pipe without waiting; `None` if it is not a
/// pipe, or is closed.
pub fn bytes_in_pipe(pipe: &impl AsHandle) -> Option<u32> {
    let (pipe, mut bytes) = (pipe.as_handle().as_raw_handle(), 0);
    let none = ptr::null_mut();
    // SAFETY: reads nothing, and writes one number.
    let done = unsafe { PeekNamedPipe(pipe, ptr::null_mut(), 0, none, &raw mut bytes, none) };
    (done != 0).then_some(bytes)
}

/// Sets the priority of this process.
pub fn set_priority(class: PROCESS_CREATION_FLAGS) -> io::Result<()> {
    // SAFETY: takes a number, and refuses numbers that are no class.
    match unsafe { SetPriorityClass(this_process(), class) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(feature = "program")]
/// Calls `handle` for each event of the console, on a thread that the system starts.
pub fn handle_console_events(handle: extern "system" fn(u32) -> BOOL) -> io::Result<()> {
    // SAFETY: `handle` is safe to call, on any thread and until the program exits.
    match unsafe { SetConsoleCtrlHandler(Some(handle), true.into()) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn this_process() -> HANDLE {
    // SAFETY: returns a constant that means this process.
    unsafe { GetCurrentProcess() }
}
