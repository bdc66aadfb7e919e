package main

// message is an encoded protobuf message that stays as it is. Old grpc-go takes it by its Marshal and Unmarshal; newer ones wrap
// every type that has the methods of golang/protobuf 1.3, and find the same two.
type message []byte

func (m *message) Reset()                      { *m = nil }
func (m *message) String() string              { return string(*m) }
func (*message) ProtoMessage()                 {}
func (m *message) Marshal() ([]byte, error)    { return *m, nil }
func (m *message) Unmarshal(from []byte) error { *m = append(message(nil), from...); return nil }

// getRequest encodes a GetPodResourcesRequest: pod_name = 1, pod_namespace = 2; both shorter than 128 bytes.
func getRequest(namespace, pod string) message {
	request := append(message{1<<3 | 2, byte(len(pod))}, pod...)
	return append(append(request, 2<<3|2, byte(len(namespace))), namespace...)
}
