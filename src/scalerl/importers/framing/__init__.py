"""Binary framings that several trackers share: what is below an importer of event files and run logs.

`protobuf` walks messages without their schemas, `tfrecord` and `leveldb` cut a file into checked records, `crc32c` is the
checksum of the former, and `damage` counts what had to be left out. No tracker's package is needed, and none is imported.
"""
