#!/bin/sh
# From an empty folder to a release, as a newcomer types it; each command says the next one.
set -eu
pipeline init services
cd services
nox -s update lint
nox -s build test
nox -s scan sign verify
nox -s promote -- os
nox -s history -- os
