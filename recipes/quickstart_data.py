"""Text for the quickstart recipe: this machine's C and C++ headers, one .txt file per header.

    python3 recipes/quickstart_data.py FOLDER

Only of packages that ./dev setup installs, so that machines of one distribution see the same text
whatever else they have.
"""
import os
import shutil
import sys

ROOT = "/usr/include"
FOLDERS = ["absl", "asm-generic", "c++", "CLI", "gmock", "google", "grpc", "grpcpp", "gtest", "linux",
           "net", "netinet", "nlohmann", "spdlog", "toml++", "x86_64-linux-gnu/bits", "x86_64-linux-gnu/sys"]
MAX_FILE_BYTES = 256 * 1024  # generated tables are larger
MAX_TOTAL_BYTES = 32 * 1024 * 1024


def headers():
    paths = []
    for folder in FOLDERS:
        for parent, _, names in os.walk(os.path.join(ROOT, folder)):
            # The headers of the C++ standard library have no suffix.
            paths += [os.path.join(parent, name) for name in names
                      if name.endswith((".h", ".hpp", ".tcc")) or (folder == "c++" and "." not in name)]
    return sorted(path for path in paths if os.path.isfile(path))


def main():
    out = sys.argv[1]
    if os.path.isdir(out):
        return
    work = out + ".partial"
    shutil.rmtree(work, ignore_errors=True)
    num_files = total_bytes = 0
    for path in headers():
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if not 0 < len(text) <= MAX_FILE_BYTES or b"\0" in text or total_bytes + len(text) > MAX_TOTAL_BYTES:
            continue
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            continue
        copy = os.path.join(work, os.path.relpath(path, ROOT) + ".txt")
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "wb") as file:
            file.write(text)
        num_files += 1
        total_bytes += len(text)
    if num_files < 2:
        sys.exit(f"quickstart: {ROOT} has no headers to learn from; ./dev setup installs some")
    os.rename(work, out)
    print(f"quickstart: {num_files} headers, {total_bytes / 1e6:.1f} MB of text in {out}", file=sys.stderr)


main()
