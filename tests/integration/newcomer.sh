#!/bin/sh
# From an empty folder to a release, as a newcomer types it.
set -eu
pipeline init services
cd services
nox -s update
nox -s new -- web --parent os
nox -s lint build test
nox -s scan sign verify
nox -s promote -- os web
nox -s history -- web
