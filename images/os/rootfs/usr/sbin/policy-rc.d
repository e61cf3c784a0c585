#!/bin/sh
# Packages that are installed later must not start services: there is no init system here.
exit 101
