"""Writes an image for containers: one layer with the program and its licences, and the settings of deploy/Dockerfile.

The archive is both a layout of the Open Container Initiative (index.json: Podman, and Docker with containerd's image
store) and one of `docker save` (manifest.json: Docker's own image store). The same program gives the same bytes.
$SOURCE_DATE_EPOCH is the time of the image and of its files.

usage: python3 scripts/releasing/image.py OUT VERSION ARCHITECTURE FOLDER

The layouts: github.com/opencontainers/image-spec, and image/tarexport of github.com/moby/moby.
"""
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import sys
import tarfile

TIME = int(os.environ["SOURCE_DATE_EPOCH"])
DOCKERFILE = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy" / "Dockerfile"
OCI = "application/vnd.oci.image"


def main(out, version, architecture, folder):
    folder = pathlib.Path(folder)
    files = {"usr/local/bin/rope-cpu": (folder / "rope-cpu", 0o755)}
    for licence in sorted(folder.glob("LICENSE-*")):
        files[f"usr/share/doc/rope-cpu/{licence.name}"] = (licence, 0o644)
    contents = {name: (path.read_bytes(), mode) for name, (path, mode) in files.items()}
    layer = tar(contents)
    blobs = {}

    def blob(data, media):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = (data, 0o644)
        return {"mediaType": f"{OCI}.{media}", "digest": f"sha256:{digest}", "size": len(data)}

    created = datetime.datetime.fromtimestamp(TIME, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"architecture": architecture, "os": "linux"}
    settings = {
        "User": "65532:65532",
        "ExposedPorts": {"8080/tcp": {}},
        "Env": re.findall(r"^ENV (.*)", DOCKERFILE.read_text(), re.MULTILINE),
        "Entrypoint": ["/usr/local/bin/rope-cpu", "serve"],
        "StopSignal": "SIGTERM",
    }
    config = blob(text({
        "created": created,
        **platform,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/releasing/image.py"}],
    }), "config.v1+json")
    layers = [blob(gzip.compress(layer, mtime=0), "layer.v1.tar+gzip")]
    manifest = blob(text({
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": config,
        "layers": layers,
    }), "manifest.v1+json")
    # The full name, as `docker save` writes it: containerd adds no registry.
    names = {
        "io.containerd.image.name": f"docker.io/library/rope-cpu:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [{**manifest, "platform": platform, "annotations": names}],
    }

    def path(descriptor):
        return "blobs/" + descriptor["digest"].replace(":", "/")

    saved = {"Config": path(config), "RepoTags": [f"rope-cpu:{version}"], "Layers": [path(layer) for layer in layers]}
    archive = tar({
        **blobs,
        "index.json": (text(index), 0o644),
        "manifest.json": (text([saved]), 0o644),
        "oci-layout": (text({"imageLayoutVersion": "1.0.0"}), 0o644),
    })
    pathlib.Path(out).write_bytes(archive)


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


def tar(files):
    """Returns an archive of `files` (name: contents and mode), with their folders."""
    out, folders = io.BytesIO(), set()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in files.items():
            for folder in reversed(pathlib.PurePosixPath(name).parents[:-1]):
                if folder not in folders:
                    folders.add(folder)
                    archive.addfile(entry(str(folder), tarfile.DIRTYPE, 0o755))
            file = entry(name, tarfile.REGTYPE, mode)
            file.size = len(data)
            archive.addfile(file, io.BytesIO(data))
    return out.getvalue()


def entry(name, kind, mode):
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.mtime = kind, mode, TIME
    return made


main(*sys.argv[1:])
