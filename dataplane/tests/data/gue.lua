-- Reads GUE version 0 on UDP port 19523, with its private data of hops, for Wireshark and tshark:
--   tshark -X lua_script:gue.lua -r capture.pcap
local gue = Proto("tryst_gue", "GUE with hops")
local f = gue.fields
f.version = ProtoField.uint8("tryst_gue.version", "Version", base.DEC, nil, 0xc0)
f.control = ProtoField.uint8("tryst_gue.control", "Control", base.DEC, nil, 0x20)
f.hlen = ProtoField.uint8("tryst_gue.hlen", "Header length (32-bit words)", base.DEC, nil, 0x1f)
f.proto = ProtoField.uint8("tryst_gue.proto", "Protocol inside")
f.flags = ProtoField.uint16("tryst_gue.flags", "Flags", base.HEX)
f.kind = ProtoField.uint16("tryst_gue.type", "Private data type")
f.next_hop = ProtoField.uint8("tryst_gue.next_hop", "Next hop")
f.hop_count = ProtoField.uint8("tryst_gue.hop_count", "Hop count")
f.hop4 = ProtoField.ipv4("tryst_gue.hop", "Hop")
f.hop6 = ProtoField.ipv6("tryst_gue.hop6", "Hop")

function gue.dissector(buffer, info, tree)
    local words = buffer(0, 1):bitfield(3, 5)
    local length = 4 + 4 * words
    local item = tree:add(gue, buffer(0, length))
    item:add(f.version, buffer(0, 1))
    item:add(f.control, buffer(0, 1))
    item:add(f.hlen, buffer(0, 1))
    item:add(f.proto, buffer(1, 1))
    item:add(f.flags, buffer(2, 2))
    item:add(f.kind, buffer(4, 2))
    item:add(f.next_hop, buffer(6, 1))
    item:add(f.hop_count, buffer(7, 1))
    local size = buffer(4, 2):uint() == 1 and 16 or 4
    for hop = 0, buffer(7, 1):uint() - 1 do
        item:add(size == 16 and f.hop6 or f.hop4, buffer(8 + size * hop, size))
    end
    local inner = buffer(1, 1):uint() == 41 and "ipv6" or "ip"
    Dissector.get(inner):call(buffer(length):tvb(), info, tree)
    return buffer:len()
end

DissectorTable.get("udp.port"):add(19523, gue)
