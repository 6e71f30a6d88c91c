package lockpb

import (
	"context"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The generated code must match the .proto file of the repository, which the server is
// built from.
func TestGeneratedCodeIsThatOfTheProtoFile(t *testing.T) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../../../proto"}}),
	}
	files, err := compiler.Compile(context.Background(), "dapr/proto/components/v1/lock.proto")
	if err != nil {
		t.Fatal(err)
	}
	source := withoutJSONNames(protodesc.ToFileDescriptorProto(files[0]))
	generated := withoutJSONNames(protodesc.ToFileDescriptorProto(File_dapr_proto_components_v1_lock_proto))
	if !proto.Equal(source, generated) {
		t.Errorf("lock.pb.go does not match lock.proto: run go generate ./lockpb\nsource: %v\ngenerated: %v", source, generated)
	}
}

// withoutJSONNames drops what a compiler may spell out or leave to the default.
func withoutJSONNames(file *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	file.SourceCodeInfo = nil
	var strip func([]*descriptorpb.DescriptorProto)
	strip = func(messages []*descriptorpb.DescriptorProto) {
		for _, message := range messages {
			for _, field := range message.GetField() {
				field.JsonName = nil
			}
			strip(message.GetNestedType())
		}
	}
	strip(file.GetMessageType())
	return file
}
