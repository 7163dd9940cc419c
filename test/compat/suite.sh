#!/usr/bin/env bash
# Unpacks the servers of another Debian suite into a folder, as root on Debian, in about a
# minute. It does nothing if the folder exists.
#   test/compat/suite.sh SUITE FOLDER
# FOLDER/redis and FOLDER/valkey then hold programs for DUEFLEET_TEST_SERVERS. Both have the
# same RabbitMQ, and redis-server is the store that the folder is named after.
set -euo pipefail
suite=$1 dir=$2
[ ! -e "$dir" ] || exit 0

# mirror prints the mirror that this machine's apt uses, if apt has its lists.
mirror() {
	# shellcheck disable=SC2016 # apt-get fills it in
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' \
		'Component: main' | sed -n 1p
}
[ -n "$(mirror)" ] || apt-get update -qq

echo "compat: unpacking RabbitMQ, Redis and Valkey of Debian $suite; this takes about a minute, once"
rm -rf "$dir.part"
mkdir -p "$dir.part"
# The Release file of a mirror's copy may have expired.
mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
	--include=rabbitmq-server,redis-server,valkey-server "$suite" "$dir.part/root" "$(mirror)"
touch "$dir.part/root/etc/hosts"

# wrap writes a program that execs one of the suite, with the suite's /usr and /etc. These
# mounts are in a namespace of the process and end with it. Everything else is the
# machine's: the data's folder, /proc, /dev, and /etc/hosts, where RabbitMQ finds
# localhost. The process ID stays the same, so signals reach the server.
wrap() {
	cat >"$dir.part/$1" <<-END
		#!/bin/sh
		exec unshare --mount --propagation private sh -c '
			mount --bind /etc/hosts "\$0/etc/hosts" && mount --rbind "\$0/etc" /etc && mount --bind "\$0/usr" /usr &&
			exec "\$@"' '$dir/root' $2 "\$@"
	END
	chmod +x "$dir.part/$1"
}
for store in redis valkey; do
	mkdir "$dir.part/$store"
	wrap "$store/redis-server" "/usr/bin/$store-server"
	wrap "$store/epmd" /usr/bin/epmd
	wrap "$store/rabbitmq-server" /usr/lib/rabbitmq/bin/rabbitmq-server
	wrap "$store/rabbitmqctl" /usr/lib/rabbitmq/bin/rabbitmqctl
done
mv "$dir.part" "$dir"
