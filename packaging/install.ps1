# Installs rope-cpu @VERSION@ into %LOCALAPPDATA%\rope-cpu, on Windows.
#
#   irm @URL@/install.ps1 | iex
#
# ROPE_CPU_RELEASES   the folder with the archives and SHA256SUMS
# ROPE_CPU_BIN        the folder for the program
& {
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue' # the progress bar slows downloads

    $releases = if ($env:ROPE_CPU_RELEASES) { $env:ROPE_CPU_RELEASES } else { '@URL@' }
    $folder = if ($env:ROPE_CPU_BIN) { $env:ROPE_CPU_BIN } else { Join-Path $env:LOCALAPPDATA 'rope-cpu' }

    $processor = if ($env:PROCESSOR_ARCHITEW6432) { $env:PROCESSOR_ARCHITEW6432 } else { $env:PROCESSOR_ARCHITECTURE }
    if ($processor -ne 'AMD64') {
        throw "install.ps1: there is no program for Windows on $processor; build it: cargo install --git @REPOSITORY@"
    }
    $name = 'rope-cpu-@VERSION@-x86_64-pc-windows-gnu'
    $tmp = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
    New-Item -ItemType Directory $tmp | Out-Null
    try {
        foreach ($file in "$name.zip", 'SHA256SUMS') {
            try { Invoke-WebRequest -UseBasicParsing "$releases/$file" -OutFile (Join-Path $tmp $file) }
            catch { throw "install.ps1: cannot download $releases/${file}: $_" }
        }
        $line = Get-Content (Join-Path $tmp 'SHA256SUMS') | Where-Object { ($_ -split '\s+')[1] -eq "$name.zip" }
        if (-not $line) { throw "install.ps1: SHA256SUMS does not name $name.zip" }
        $expected = ($line -split '\s+')[0]
        $actual = (Get-FileHash -Algorithm SHA256 (Join-Path $tmp "$name.zip")).Hash
        if ($actual -ne $expected) {
            throw "install.ps1: $name.zip has the checksum $actual instead of $expected; nothing is installed"
        }
        Expand-Archive (Join-Path $tmp "$name.zip") $tmp
        New-Item -ItemType Directory -Force $folder | Out-Null
        Copy-Item -Force (Join-Path $tmp "$name\rope-cpu.exe") $folder
        Write-Output "installed $(& (Join-Path $folder 'rope-cpu.exe') --version) as $folder\rope-cpu.exe"
        if (($env:PATH -split ';') -notcontains $folder) {
            Write-Output "$folder is not in PATH; add it, for new terminals:"
            Write-Output "    [Environment]::SetEnvironmentVariable('PATH', [Environment]::GetEnvironmentVariable('PATH', 'User') + ';$folder', 'User')"
        }
    } finally {
        Remove-Item -Recurse -Force $tmp
    }
}
