#!/bin/sh
# Install from this folder alone: no network, every wheel by its hash.
#
#   ./install.sh ARCH|all [options of pip install]       archs: the files in requirements/
#
# PIP names another installer: PIP="uv pip" ./install.sh sm_90
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ $# -lt 1 ] || [ ! -f "$here/requirements/$1.txt" ]; then
  known=$(cd "$here/requirements" && ls | sed 's/\.txt$//' | tr '\n' ' ')
  echo "install.sh: which architecture? known here: $known" >&2
  exit 2
fi
arch=$1
shift
(cd "$here" && sha256sum --check --quiet SHA256SUMS) || {
  echo "install.sh: this bundle is damaged; nothing is installed" >&2
  exit 20
}
exec ${PIP:-python3 -m pip} install --no-index --find-links "$here/wheels" --require-hashes \
  -r "$here/requirements/$arch.txt" "$@"
